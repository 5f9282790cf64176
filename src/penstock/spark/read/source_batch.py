"""A stream as a table: everything between two positions, divided into tasks when Spark plans.

The end is fixed at planning time, so a query reads what existed when it began, whatever is written
later. Filters of the query narrow the read, where Spark passes them on.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from penstock.spark.message_rows import DATA
from penstock.spark.payloads.payload_plan import VALUE
from penstock.spark.read.filter_pushdown import Narrowing, Pushing, is_exact, narrowed
from penstock.spark.read.offsets import Offset, Position
from penstock.spark.read.read_plan import (
    checked_start,
    clipped,
    ranges_between,
    removed_after,
    split,
)
from penstock.spark.read.read_task import RangePartition, mode_for, read_range
from penstock.spark.read.start_positions import Earliest, Latest, places
from penstock.spark.read.stream_metadata import StreamMetadata, split_list

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from penstock.spark.compat import Filter
    from penstock.spark.payloads.payload_plan import PayloadPlan
    from penstock.spark.read.read_plan import StreamView
    from penstock.spark.read.source_options import ReadOptions


log = logging.getLogger(__name__)


class StreamTable(DataSourceReader):
    """Plans in the driver, reads in tasks."""

    def __init__(
        self, options: ReadOptions, schema: StructType, plan: PayloadPlan | None = None
    ) -> None:
        self._options = options
        self._plan = plan
        self._schema = schema
        self._narrowing = Narrowing()
        self._starts = places(
            StreamMetadata(options).streams,
            seq=("startingSeq", options.starting_seq),
            timestamp=("startingTimestamp", options.starting_timestamp),
            default=Earliest(),
        )
        self._ends = places(
            tuple(self._starts),
            seq=("endingSeq", options.ending_seq),
            timestamp=("endingTimestamp", options.ending_timestamp),
            default=Latest(),
        )
        self.pushFilters = Pushing(self._take_filters)  # type: ignore[method-assign]

    def _take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Keep what narrows the read; return what Spark must still evaluate."""
        self._narrowing = narrowed(filters)
        options = split_list(self._options.subjects)
        return [one for one in filters if not is_exact(one, self._narrowing, options)]

    def partitions(self) -> Sequence[InputPartition]:
        desk = StreamMetadata(self._options)
        views = desk.views()
        filters = self._narrowing.subjects_within(split_list(self._options.subjects))
        if filters is None:
            return []
        start = Offset(desk.starts(self._starts, views))
        if not self._options.fails_on_removal:
            start = _without_removed(start, views)
        checked_start(start, views, fail_on_loss=self._options.fails_on_loss)
        end = Offset(desk.ends(self._ends, views))
        start, end = self._narrow(desk, views, start, end)
        parts = partitions_of(
            self._options,
            start,
            end,
            views,
            filters,
            may_shrink=not self._options.fails_on_removal,
        )
        log_plan(parts, self._schema, filters)
        return parts

    def _narrow(
        self, desk: StreamMetadata, views: Mapping[str, StreamView], start: Offset, end: Offset
    ) -> tuple[Offset, Offset]:
        """Return the part between two offsets that the filters select."""
        wanted = self._narrowing
        starts: dict[str, Position] = {}
        ends: dict[str, Position] = {}
        for name, view in views.items():
            first = max(start.streams[name].seq, wanted.first_seq - 1)
            last = end.streams[name].seq
            if wanted.last_seq is not None:
                last = min(last, wanted.last_seq)
            if wanted.first_ns is not None:
                first = max(first, desk.first_since(view, wanted.first_ns) - 1)
            if wanted.stop_ns is not None:
                last = min(last, desk.first_since(view, wanted.stop_ns) - 1)
            starts[name] = Position(first, view.created)
            ends[name] = Position(last, view.created)
        return Offset(starts), Offset(ends)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return read_partition(partition, self._schema, self._options, self._plan)


def _without_removed(start: Offset, views: Mapping[str, StreamView]) -> Offset:
    """Return an offset that begins at the current first messages; log what the limits removed."""
    found = dict(start.streams)
    for name, position in start.streams.items():
        count = removed_after(views[name], position)
        if count:
            log.warning(
                "stream %s begins at %d: its limits removed %d sequences before this read",
                name,
                views[name].first_seq,
                count,
            )
            found[name] = Position(views[name].front, position.created)
    return Offset(found)


def log_plan(parts: Sequence[InputPartition], schema: StructType, filters: Sequence[str]) -> None:
    """Log one line that describes what is read, and what the server omits."""
    ranges = [one.range for one in parts if isinstance(one, RangePartition)]
    spans: dict[str, tuple[int, int]] = {}
    for one in ranges:
        first, _ = spans.get(one.stream, (one.start, 0))
        spans[one.stream] = (first, one.stop - 1)
    log.info(
        "read planned: tasks=%d sequences=%s subjects=%s columns=%s payloads=%s",
        len(ranges),
        ",".join(f"{name}:{first}-{last}" for name, (first, last) in spans.items()) or "none",
        ",".join(filters) or "all",
        ",".join(schema.names),
        "sent" if {DATA, VALUE} & set(schema.names) else "left out",
    )


def partitions_of(
    options: ReadOptions,
    start: Offset,
    end: Offset,
    views: Mapping[str, StreamView],
    filters: tuple[str, ...],
    *,
    may_shrink: bool = False,
) -> list[InputPartition]:
    """Return the tasks for the range between two offsets."""
    parts = split(
        clipped(ranges_between(start, end), views),
        partitions_min=options.min_partitions,
        records_max=options.max_records_per_partition,
    )
    return [
        RangePartition(
            one, filters, mode_for(views[one.stream], options.read_mode), may_shrink=may_shrink
        )
        for one in parts
    ]


def read_partition(
    partition: InputPartition,
    schema: StructType,
    options: ReadOptions,
    plan: PayloadPlan | None = None,
) -> Iterator[Any]:
    """Read a partition; for the empty partition that Spark creates when there is none, no rows."""
    if not isinstance(partition, RangePartition):
        return iter(())
    return read_range(partition, schema, options, plan)
