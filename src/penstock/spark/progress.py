"""How far a query is behind: a listener that reads the offsets of `jetstream` out of its progress.

Spark tells each batch's end and the newest offset its source knew of; the difference is the lag, in
sequences, which counts deleted messages as well. Nothing here talks to a server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.offsets import Offset, OffsetError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )


@dataclass(frozen=True, slots=True)
class StreamLag:
    """One stream of one query after a batch."""

    query: str
    batch_id: int
    stream: str
    seq: int
    latest: int

    @property
    def behind(self) -> int:
        return max(0, self.latest - self.seq)


class ProgressListener(StreamingQueryListener):
    """`spark.streams.addListener(ProgressListener())`; `lags` has the newest of each stream."""

    def __init__(self, on_lag: Callable[[StreamLag], None] | None = None) -> None:
        self._on_lag = on_lag
        self.lags: dict[tuple[str, str], StreamLag] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is known yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = progress.name or str(progress.id)
        for source in progress.sources:
            for lag in lags_of(query, progress.batchId, source.endOffset, source.latestOffset):
                self.lags[query, lag.stream] = lag
                if self._on_lag is not None:
                    self._on_lag(lag)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """As far as it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """What was known last stays."""


def lags_of(query: str, batch_id: int, end: str | None, latest: str | None) -> list[StreamLag]:
    """The lag of each stream; nothing for a source that is not ours."""
    ended, newest = _offset(end), _offset(latest)
    if ended is None or newest is None:
        return []
    return [
        StreamLag(query, batch_id, name, position.seq, newest.streams[name].seq)
        for name, position in ended.streams.items()
        if name in newest.streams
    ]


def _offset(text: str | None) -> Offset | None:
    try:
        value: Any = json.loads(text or "null")
        return Offset.from_json(value) if isinstance(value, dict) else None
    except (ValueError, KeyError, TypeError, OffsetError):
        return None
