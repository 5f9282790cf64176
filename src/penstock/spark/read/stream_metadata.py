"""Requests of the driver to the server: the current state of streams, and the sequence of a place.

Requests use one shared connection and are retried while the server is unreachable, as often as the
options allow. Every failure raises a `SourceError` that names the remedy.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from penstock.bulk.errors import BulkError, may_pass
from penstock.spark.errors import explained
from penstock.spark.options import OptionError
from penstock.spark.read.offsets import Position
from penstock.spark.read.read_plan import StreamView
from penstock.spark.read.start_positions import AtSeq, AtTime, Earliest, Latest, StartPosition
from penstock.spark.spark_connection import MS, shared_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from penstock.spark.read.source_options import ReadOptions

T = TypeVar("T")
RETRY_SECONDS_MAX: Final = 10.0


class StreamMetadata:
    """Metadata of the streams of one source."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self.streams = stream_names(options)

    def views(self) -> dict[str, StreamView]:
        """Return the current state of every stream."""
        reader = shared_reader(self._options)
        found = {}
        for name in self.streams:
            state = self._ask(name, partial(reader.stream_state, name))
            found[name] = StreamView.of(state)
        return found

    def starts(
        self, places: Mapping[str, StartPosition], views: Mapping[str, StreamView]
    ) -> dict[str, Position]:
        """Return the position before each place."""
        return {
            name: Position(self._first(place, views[name]) - 1, views[name].created)
            for name, place in places.items()
        }

    def ends(
        self, places: Mapping[str, StartPosition], views: Mapping[str, StreamView]
    ) -> dict[str, Position]:
        """Return the last sequence each place includes, limited to the end of the stream."""
        found = {}
        for name, place in places.items():
            view = views[name]
            last = place.seq if isinstance(place, AtSeq) else self._first(place, view) - 1
            found[name] = Position(min(last, view.last_seq), view.created)
        return found

    def first_since(self, view: StreamView, time_ns: int) -> int:
        """Return the first sequence at or after a time, or the one after the last."""
        reader = shared_reader(self._options)
        found = self._ask(view.name, lambda: reader.first_since(view.name, time_ns))
        return view.last_seq + 1 if found is None else found

    def _first(self, place: StartPosition, view: StreamView) -> int:
        if isinstance(place, Earliest):
            return view.front + 1
        if isinstance(place, Latest):
            return view.last_seq + 1
        if isinstance(place, AtTime):
            return self.first_since(view, place.time_ns)
        return max(place.seq, 1)

    def _ask(self, stream: str, question: Callable[[], T]) -> T:
        pause = self._options.retry_interval_ms / MS
        for left in reversed(range(self._options.retries + 1)):
            try:
                return question()
            except BulkError as error:
                if not left or not may_pass(error):
                    raise explained(error, stream) from error
            time.sleep(pause)
            pause = min(2 * pause, RETRY_SECONDS_MAX)
        raise AssertionError


def stream_names(options: ReadOptions) -> tuple[str, ...]:
    """Return the streams that the options name, without duplicates."""
    names = split_list(options.stream)
    if not names:
        raise OptionError("option stream names no stream")
    for name in names:
        if any(mark in name for mark in ".*> \t"):
            raise OptionError(f"option stream: {name!r} is no name of a stream")
    return names


def split_list(text: str) -> tuple[str, ...]:
    """Return the words between commas, without duplicates."""
    return tuple(dict.fromkeys(word for part in text.split(",") if (word := part.strip())))
