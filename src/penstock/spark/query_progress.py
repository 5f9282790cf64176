"""Listener that reports the lag of streaming queries that read `jetstream`.

Spark reports the end offset of each batch and the newest offset its source knew; the difference is
the lag in sequences, which counts deleted messages as well. The source adds the age of the first
unread message (`source_lag`). Spark does not pass on metrics of Python sinks, so the listener reads
them from the file that the sink writes (`reportPath`) before Spark reports the batch. `metrics`
returns everything in Prometheus text format. This module contacts no server.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.streaming.listener import StreamingQueryListener

from penstock.spark.read.offsets import Offset, OffsetError
from penstock.spark.write.sink_report import read_report

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from penstock.spark.write.sink_report import SinkNumbers

#: Sink counters that add up over batches, and their help texts.
SINK_NUMBERS: Final = {
    "rows": "Rows that reached the sink.",
    "stored": "Rows that were stored.",
    "repeated": "Rows that an earlier attempt had stored.",
    "refused": "Rows that could not be stored.",
    "bytes": "Bytes of payloads.",
}


@dataclass(frozen=True, slots=True)
class StreamLag:
    """Lag of one stream of one query after a batch."""

    query: str
    batch_id: int
    stream: str
    seq: int
    latest: int
    seconds: float | None = None
    """Age of the first message after the batch; None if the source could not determine it."""

    @property
    def behind(self) -> int:
        return max(0, self.latest - self.seq)


class ProgressListener(StreamingQueryListener):
    """`spark.streams.addListener(ProgressListener())`; `lags` holds the newest lag of each stream.

    With the `report_path` of sinks (and their `write_id`, if set), `batches` holds the counters of
    the newest batch of each query, and `totals` their sums since the listener was created.
    """

    def __init__(
        self,
        on_lag: Callable[[StreamLag], None] | None = None,
        *,
        report_path: str = "",
        write_id: str = "",
        on_batch: Callable[[SinkNumbers], None] | None = None,
    ) -> None:
        self._on_lag = on_lag
        self._on_batch = on_batch
        self._report_path = report_path
        self._write_id = write_id
        self._counted: dict[str, tuple[str, int]] = {}
        self.lags: dict[tuple[str, str], StreamLag] = {}
        self.batches: dict[str, SinkNumbers] = {}
        self.totals: dict[str, Counter[str]] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        progress = event.progress
        query = progress.name or str(progress.id)
        for source in progress.sources:
            for lag in lags_of(query, progress.batchId, source.endOffset, source.latestOffset):
                self.lags[query, lag.stream] = lag
                if self._on_lag is not None:
                    self._on_lag(lag)
        if self._report_path:
            self._count(query, str(progress.id), str(progress.runId), progress.batchId)

    def metrics(self) -> str:
        """Return the newest lags and the sums of the sink counters, for Prometheus to scrape."""
        return exposition(list(self.lags.values())) + sink_exposition(self.totals)

    def _count(self, query: str, id: str, run: str, batch: int) -> None:
        """Add the sink counters of a batch, once for each run that wrote it."""
        if self._counted.get(query) == (run, batch):
            return
        numbers = read_report(self._report_path, id, batch, self._write_id)
        if numbers is None:
            return
        self._counted[query] = (run, batch)
        self.batches[query] = numbers
        sums = self.totals.setdefault(query, Counter())
        for name in SINK_NUMBERS:
            sums[name] += getattr(numbers, name)
        if self._on_batch is not None:
            self._on_batch(numbers)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the progress is unchanged."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the last values stay available."""


def lags_of(query: str, batch_id: int, end: str | None, latest: str | None) -> list[StreamLag]:
    """Return the lag of each stream; an empty list for a source of another format."""
    ended, newest = _offset(end), _offset(latest)
    if ended is None or newest is None:
        return []
    return [
        StreamLag(
            query, batch_id, name, position.seq, newest.streams[name].seq, _seconds(latest, name)
        )
        for name, position in ended.streams.items()
        if name in newest.streams
    ]


def exposition(lags: Sequence[StreamLag]) -> str:
    """Return lags in Prometheus text format."""
    lines: list[str] = []
    for name, text, value in _GAUGES:
        lines += [f"# HELP {name} {text}", f"# TYPE {name} gauge"]
        for lag in lags:
            number = value(lag)
            if number is not None:
                labels = f'query="{_label(lag.query)}",stream="{_label(lag.stream)}"'
                lines.append(f"{name}{{{labels}}} {number}")
    return "\n".join(lines) + "\n"


def sink_exposition(totals: Mapping[str, Counter[str]]) -> str:
    """Return the sums of sink counters by query, in the same format; empty if there are none."""
    lines: list[str] = []
    for number, text in SINK_NUMBERS.items() if totals else ():
        name = f"penstock_spark_sink_{number}_total"
        lines += [f"# HELP {name} {text}", f"# TYPE {name} counter"]
        lines += [f'{name}{{query="{_label(q)}"}} {sums[number]}' for q, sums in totals.items()]
    return "".join(f"{line}\n" for line in lines)


_GAUGES: Final[tuple[tuple[str, str, Callable[[StreamLag], float | None]], ...]] = (
    (
        "penstock_spark_lag_messages",
        "Sequences after the last batch.",
        lambda lag: lag.behind,
    ),
    (
        "penstock_spark_lag_seconds",
        "Age of the first message after the last batch.",
        lambda lag: lag.seconds,
    ),
    ("penstock_spark_seq", "Last sequence read.", lambda lag: lag.seq),
    ("penstock_spark_batch_id", "Last batch.", lambda lag: lag.batch_id),
)


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _seconds(latest: str | None, stream: str) -> float | None:
    seconds = json.loads(latest or "{}").get("lag", {}).get(stream, {}).get("seconds")
    return float(seconds) if isinstance(seconds, int | float) else None


def _offset(text: str | None) -> Offset | None:
    try:
        value: Any = json.loads(text or "null")
        return Offset.from_json(value) if isinstance(value, dict) else None
    except (ValueError, KeyError, TypeError, OffsetError):
        return None
