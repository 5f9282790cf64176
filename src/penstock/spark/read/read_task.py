"""Read task: one range of sequences of one stream, as record batches for Spark.

After a lost connection it resumes after the last row it returned, so Spark gets each message once.
Missing messages raise an error, or are skipped where the options or the retention of the stream
allow it. A range that ends in deleted messages still ends.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

try:
    from pyspark.sql.datasource import InputPartition
except ImportError:  # ranges are read without Spark too (`stream_rows`)
    InputPartition = object  # type: ignore[assignment,misc]

from penstock.api.error_codes import NO_CONSUMER
from penstock.bulk.bulk_connection import MSG_NEXT
from penstock.bulk.errors import BulkError, NotPermitted, Refused, may_pass
from penstock.spark.errors import DataLoss, explained, lost
from penstock.spark.message_rows import RowMaker
from penstock.spark.payloads.payload_plan import VALUE, PayloadColumns
from penstock.spark.read.offsets import Position
from penstock.spark.read.read_plan import StreamView, fault_of, removed_after
from penstock.spark.spark_connection import BATCH_BYTES, BATCH_RECORDS, MS, shared_reader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

    from penstock.bulk.blocking_reader import BlockingReader
    from penstock.bulk.bulk_requests import StreamSummary
    from penstock.bulk.record_batch import Batch
    from penstock.spark.payloads.payload_plan import PayloadPlan
    from penstock.spark.read.read_plan import SeqRange
    from penstock.spark.read.source_options import ReadOptions

HEARTBEATS_PER_POLL: Final = 3
RETRY_SECONDS_MAX: Final = 10.0
#: Below this size the header with the size is as large as the payload.
HEADERS_ONLY_BYTES_MIN: Final = 128
CONSUMER, DIRECT, SINGLE = "consumer", "direct", "single"
#: Consumer limit reached; a work queue allows no consumer without acknowledgements.

log = logging.getLogger(__name__)


@dataclass(init=False)
class RangePartition(InputPartition):
    """Description of a task: numbers and names, no secrets."""

    range: SeqRange
    filters: tuple[str, ...]
    mode: str
    may_shrink: bool
    """True in a table: the stream's limits may remove messages before they are read."""

    def __init__(
        self, seqs: SeqRange, filters: tuple[str, ...], mode: str, *, may_shrink: bool = False
    ) -> None:
        super().__init__(None)
        self.range = seqs
        self.filters = filters
        self.mode = mode
        self.may_shrink = may_shrink


def mode_for(view: StreamView, read_mode: str) -> str:
    """Return how ranges of a stream are read."""
    if read_mode == CONSUMER or (read_mode != DIRECT and not view.consumes):
        return CONSUMER
    return DIRECT if view.allows_direct else SINGLE


def read_range(
    partition: RangePartition,
    schema: StructType,
    options: ReadOptions,
    plan: PayloadPlan | None = None,
) -> Iterator[Any]:
    """Yield record batches of about `BATCH_RECORDS` rows; joins smaller batches."""
    payloads = _payload_columns(partition, schema, options, plan)
    maker = RowMaker(partition.range.stream, schema, payloads)
    reading = RangeReading(partition, options, payloads=maker.needs_payloads)
    held: list[Any] = []
    rows = byte_count = 0
    for batch in reading.batches():
        held.append(maker.make(batch, headers_only=reading.is_headers_only))
        rows += batch.count
        byte_count += batch.byte_count
        # Half a batch is as good for Spark, and avoids the copy of a join.
        if rows >= BATCH_RECORDS // 2 or byte_count >= BATCH_BYTES // 2:
            yield maker.join(held)
            held, rows, byte_count = [], 0, 0
    if held:
        yield maker.join(held)
    if payloads is not None:
        payloads.report()


def _payload_columns(
    partition: RangePartition, schema: StructType, options: ReadOptions, plan: PayloadPlan | None
) -> PayloadColumns | None:
    """Return the payload decoder, or None if no column needs one."""
    if plan is None or VALUE not in schema.names:
        return None
    from penstock.spark.compat import to_arrow_type  # needs pyspark, which other readers do not

    target = to_arrow_type(schema[VALUE].dataType)
    span = partition.range
    return PayloadColumns(plan, span.stream, span.created, target, options)


class RangeReading:
    """Reads one range, with retries."""

    def __init__(
        self, partition: RangePartition, options: ReadOptions, *, payloads: bool = True
    ) -> None:
        self._range = partition.range
        self._filters = partition.filters
        self._mode = partition.mode
        self._may_shrink = partition.may_shrink
        self._position_removed = partition.range.start - 1
        self.removed = 0
        """Number of sequences that the stream's limits removed before they were read."""
        self._payloads = payloads
        self._pulls = True
        self._options = options
        self._position = partition.range.start - 1
        self._reader: BlockingReader = shared_reader(
            options, consumer_prefix=options.consumer_name_prefix
        )
        self._view: StreamView | None = None
        self.is_headers_only = False
        """True if the last batch came without payloads, with the sizes in its headers."""

    def batches(self) -> Iterator[Batch]:
        """Yield every message of the range once, in ascending order."""
        failures = 0
        deadline = 0.0
        while True:
            before = self._position
            try:
                yield from self._attempt()
                return
            except _StreamMissing:
                return
            except BulkError as error:
                if self._falls_back(error):
                    continue
                if failures == 0 or self._position > before:
                    failures = 0
                    deadline = time.monotonic() + self._options.reconnect_timeout_ms / MS
                failures += 1
                if not may_pass(error) or not self._has_time(failures, deadline):
                    raise explained(error, self._range.stream) from error
                log.info("again stream=%s after=%d: %s", self._range.stream, self._position, error)
            pause = self._options.retry_interval_ms / MS * 2 ** (failures - 1)
            time.sleep(min(pause, RETRY_SECONDS_MAX))

    def _has_time(self, failures: int, deadline: float) -> bool:
        """Return True if a retry is allowed: until the deadline once connected, else `retries`
        times."""
        if self._view is None:
            return failures <= self._options.retries
        return time.monotonic() < deadline

    def _attempt(self) -> Iterator[Batch]:
        """Yield the rest of the range."""
        self._check_now()
        if self._view is None or self._position + 1 >= self._range.stop:
            return
        for batch in self._rest():
            self._check_gap(batch.first_gap(self._position))
            self._position = batch.last
            yield batch
        self._check_gap(self._position if self._position + 1 < self._range.stop else -1)
        self._report_removed()

    def _rest(self) -> Iterator[Batch]:
        start, stop = self._position + 1, self._range.stop
        self.is_headers_only = (
            not self._payloads
            and self._mode == CONSUMER
            and self._view is not None
            and self._view.mean_bytes >= HEADERS_ONLY_BYTES_MIN
        )
        if self._mode == CONSUMER:
            return self._reader.range(
                self._range.stream,
                start=start,
                stop=stop,
                filters=self._filters,
                headers_only=self.is_headers_only,
                pulls=self._pulls,
                heartbeat=self._options.poll_timeout_ms / MS / HEARTBEATS_PER_POLL,
                check=self._check,
            )
        return self._reader.direct(
            self._range.stream,
            start=start,
            stop=stop,
            filters=self._filters,
            batched=self._mode == DIRECT,
        )

    def _falls_back(self, error: BulkError) -> bool:
        """Return True if another read mode remains after consumers or pull requests were
        refused."""
        if isinstance(error, NotPermitted) and MSG_NEXT in str(error) and self._pulls:
            self._pulls = False
            return True
        refused = isinstance(error, NotPermitted) or (
            isinstance(error, Refused) and error.err_code in NO_CONSUMER
        )
        is_bound = self._options.read_mode == CONSUMER or self._mode != CONSUMER
        if not refused or is_bound or self._view is None:
            return False
        self._mode = DIRECT if self._view.allows_direct else SINGLE
        return True

    # -- data loss

    def _check_now(self) -> None:
        self._check(self._reader.stream_state(self._range.stream), self._position)

    def _check_gap(self, position: int) -> None:
        """Check a gap after a position: the messages were deleted, filtered, or evicted before the
        read.

        The first sequence of a stream never decreases, so its current state covers the past.
        """
        if position >= 0 and self._view is not None and not self._view.sheds:
            view = StreamView.of(self._reader.stream_state(self._range.stream))
            if self._shrank(view, position):
                return
            fault = fault_of(view, Position(position, self._range.created))
            if fault:
                self._lose(fault)

    def _check(self, state: StreamSummary, position: int) -> None:
        """Raise `DataLoss` if the stream is not the one that was planned."""
        view = StreamView.of(state)
        self._view = view
        if self._shrank(view, position):
            return
        fault = fault_of(view, Position(position, self._range.created))
        if not fault and view.last_seq + 1 < self._range.stop:
            fault = (
                f"stream {view.name} ends at {view.last_seq}, though {self._range.stop - 1} was "
                "planned to be read"
            )
        if fault:
            self._lose(fault)
            if view.created != self._range.created:
                # The range does not refer to the messages of a recreated stream.
                raise _StreamMissing

    def _shrank(self, view: StreamView, position: int) -> bool:
        """Count what the limits removed from this range, where that is allowed."""
        if not self._may_shrink or not removed_after(view, Position(position, self._range.created)):
            return False
        counted_to = max(position, self._position_removed)
        front = min(view.front, self._range.stop - 1)
        self.removed += max(0, front - counted_to)
        self._position_removed = max(counted_to, front)
        return True

    def _report_removed(self) -> None:
        if self.removed:
            log.warning(
                "stream %s: its limits removed %d of the sequences %d-%d before they were read",
                self._range.stream,
                self.removed,
                self._range.start,
                self._range.stop - 1,
            )

    def _lose(self, fault: str) -> None:
        if self._options.fails_on_loss:
            raise lost(fault)
        log.warning("data loss, going on: %s", fault)


class _StreamMissing(DataLoss):
    """The stream of this range no longer exists, and the options allow the query to continue."""
