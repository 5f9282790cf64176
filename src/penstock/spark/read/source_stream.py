"""A stream as a streaming table: the driver side of a streaming query.

Spark's checkpoint is the only cursor; nothing is acknowledged to the server. This object lives in a
Python process next to the driver for one run of the query. It keeps three things: where the query
began, when the last batch was returned, and what "now" means under AvailableNow.

A query that starts at a moving position ("latest", or a time in the future) first creates an empty
batch, so that the position is in the checkpoint before anything depends on it (see `offsets`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from penstock.base.durations import parse_duration
from penstock.base.units import SECOND_NS
from penstock.spark.compat import (
    HAS_LIMITS,
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from penstock.spark.errors import lost
from penstock.spark.options import OptionError
from penstock.spark.read.offsets import Offset, batch_start
from penstock.spark.read.read_plan import (
    ReadLimits,
    StreamView,
    advanced,
    available,
    checked_start,
    fault_of,
)
from penstock.spark.read.source_batch import partitions_of, read_partition
from penstock.spark.read.source_lag import lag_of, show_cursor
from penstock.spark.read.start_positions import AtTime, Earliest, Latest, StartPosition, places
from penstock.spark.read.stream_metadata import StreamMetadata, split_list
from penstock.spark.spark_connection import MS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from penstock.spark.payloads.payload_plan import PayloadPlan
    from penstock.spark.read.source_options import ReadOptions

IDLE_PAUSE_SECONDS_FIRST: Final = 0.01
IDLE_PAUSE_SECONDS_MAX: Final = 0.1

Views = dict[str, StreamView]


class StreamFollower(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Returns the end of each batch, and plans its tasks."""

    def __init__(
        self, options: ReadOptions, schema: StructType, plan: PayloadPlan | None = None
    ) -> None:
        if options.ending_seq or options.ending_timestamp:
            raise OptionError(
                "endingSeq and endingTimestamp are for tables: a query that goes on has no end"
            )
        if not HAS_LIMITS and _limits_of(options):
            raise OptionError(
                f"{', '.join(_limits_of(options))} needs Spark 4.2: this version lets no source "
                "limit its batches, so each reads all there is. Leave the option out"
            )
        self._options = options
        self._schema = schema
        self._plan = plan
        self._starts: dict[str, StartPosition] = places(
            StreamMetadata(options).streams,
            seq=("startingSeq", options.starting_seq),
            timestamp=("startingTimestamp", options.starting_timestamp),
            default=Earliest(),
        )
        self._delay_seconds = _delay_seconds(options.max_trigger_delay)
        self._initial: Offset | None = None
        self._is_moving = False
        self._target: dict[str, int] | None = None
        self._handed_out = time.monotonic()
        self._ended: Offset | None = None
        """End of the last batch returned."""

    # -- offsets

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            desk = StreamMetadata(self._options)
            views = desk.views()
            self._initial = Offset(desk.starts(self._starts, views), is_initial=True)
            self._is_moving = any(
                isinstance(place, Latest | AtTime)
                and self._initial.streams[name].seq >= views[name].last_seq
                for name, place in self._starts.items()
            )
        return self._initial.as_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return a limit, so that Spark reports when limits do not apply; this class applies them
        all."""
        options = self._options
        if options.max_offsets_per_trigger:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def latestOffset(
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        if start is None or limit is None:
            return self._latest()
        before = Offset.from_json(start)
        unlimited = isinstance(limit, ReadAllAvailable)
        desk = StreamMetadata(self._options)
        deadline = time.monotonic() + self._options.idle_wait_ms / MS
        pause = IDLE_PAUSE_SECONDS_FIRST
        while True:
            end = self._end(before, self._now(desk), unlimited=unlimited)
            if end is not None:
                self._handed_out = time.monotonic()
                self._ended = end
                return end.as_json()
            if self._target is not None or time.monotonic() + pause > deadline:
                return start
            time.sleep(pause)
            pause = min(2 * pause, IDLE_PAUSE_SECONDS_MAX)

    def _latest(self) -> dict[str, Any]:
        """Return the ends of all streams, for Spark versions that pass neither start nor limit.

        In the first run of a query its start is known and goes into its first offset. After a
        restart the first batch is checked when it is planned.
        """
        desk = StreamMetadata(self._options)
        before = self._ended or self._initial
        deadline = time.monotonic() + self._options.idle_wait_ms / MS
        pause = IDLE_PAUSE_SECONDS_FIRST
        while True:
            views = desk.views()
            if before is None:
                end: Offset | None = Offset({name: view.end for name, view in views.items()})
            else:
                end = self._end(before, views, unlimited=True)
            if end is not None or time.monotonic() + pause > deadline:
                self._ended = end or before
                assert self._ended is not None
                return self._ended.as_json()
            time.sleep(pause)
            pause = min(2 * pause, IDLE_PAUSE_SECONDS_MAX)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        views = StreamMetadata(self._options).views()
        latest = Offset({name: view.end for name, view in views.items()}).as_json()
        if self._ended is not None:
            latest["lag"] = lag_of(self._options, self._ended, views)
        return latest

    def prepareForTriggerAvailableNow(self) -> None:
        views = StreamMetadata(self._options).views()
        self._target = {name: view.last_seq for name, view in views.items()}

    def _now(self, desk: StreamMetadata) -> Views:
        """Return the streams as they are, or as they were when AvailableNow began."""
        views = desk.views()
        if self._target is None:
            return views
        return {
            name: replace(view, last_seq=min(view.last_seq, self._target[name]))
            for name, view in views.items()
        }

    def _end(self, before: Offset, views: Views, *, unlimited: bool) -> Offset | None:
        """Return the end of a batch that begins at `before`; None if no batch is due."""
        start = checked_start(before, views, fail_on_loss=self._options.fails_on_loss)
        limits = ReadLimits() if unlimited else self._limits()
        is_due = unlimited or self._is_due(available(start, views))
        end = advanced(start, views, limits) if is_due else start
        # A stream removed from the list keeps its cursor, in case it is added again.
        absent = {name: one for name, one in before.streams.items() if name not in views}
        end = Offset({**absent, **end.streams})
        has_more = is_due and dict(end.streams) != dict(before.streams)
        if before.is_initial and (has_more or self._is_moving):
            return Offset(end.streams, began=start.streams)
        return Offset(end.streams) if has_more else None

    def _limits(self) -> ReadLimits:
        return ReadLimits(
            self._options.max_offsets_per_trigger, self._options.max_bytes_per_trigger
        )

    def _is_due(self, count: int) -> bool:
        """Return True if there is enough for a batch, or the wait was long enough."""
        return (
            count >= self._options.min_offsets_per_trigger
            or self._target is not None
            or time.monotonic() - self._handed_out >= self._delay_seconds
        )

    # -- batches

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        last = Offset.from_json(end)
        first = batch_start(Offset.from_json(start), last)
        views = StreamMetadata(self._options).views()
        self._check(first, last, views)
        known = {name: one for name, one in last.streams.items() if name in views}
        filters = split_list(self._options.subjects)
        return partitions_of(self._options, first, Offset(known), views, filters)

    def _check(self, first: Offset, last: Offset, views: Mapping[str, StreamView]) -> None:
        """Raise `DataLoss` if a batch that is planned again after a restart finds a changed
        stream."""
        inside = {name: one for name, one in first.streams.items() if name in last.streams}
        for name, one in inside.items():
            if one.created != last.streams[name].created and self._options.fails_on_loss:
                raise lost(fault_of(replace(views[name], created=last.streams[name].created), one))
        kept = Offset(
            {name: one for name, one in inside.items() if one.created == last.streams[name].created}
        )
        checked_start(
            kept,
            {name: views[name] for name in kept.streams if name in views},
            fail_on_loss=self._options.fails_on_loss,
        )

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._schema, self._options, self._plan)

    def commit(self, end: dict[str, Any]) -> None:
        """Publish the cursor if the options name a bucket; the checkpoint stays the only real
        cursor."""
        if self._options.cursor_bucket:
            done = Offset.from_json(end)
            lag = lag_of(self._options, done, StreamMetadata(self._options).views())
            show_cursor(self._options, done, lag)

    def stop(self) -> None:
        """Do nothing: connections end with the process."""


def _limits_of(options: ReadOptions) -> list[str]:
    """Return the names of the options that limit batches."""
    limits = {
        "maxOffsetsPerTrigger": options.max_offsets_per_trigger,
        "maxBytesPerTrigger": options.max_bytes_per_trigger,
        "minOffsetsPerTrigger": options.min_offsets_per_trigger,
    }
    return [name for name, value in limits.items() if value]


def _delay_seconds(text: str) -> float:
    try:
        return int(text) / MS if text.isdigit() else parse_duration(text) / SECOND_NS
    except ValueError as error:
        raise OptionError(f"option maxTriggerDelay: {error}") from None
