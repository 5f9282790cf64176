"""Tasks of the format `penstock-blocks`: read blocks and archives to batches, and report damage.

A task reads only its own files, and checks before and after that they are those the driver planned
with. Live messages that a block does not yield are damage: an error, or skipped, as requested.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, Final

from penstock.bulk.record_batch import Batch
from penstock.spark.files.blocks_archive import BATCH_BYTES, BATCH_ROWS, batch_of, batches
from penstock.spark.files.blocks_location import disk_at
from penstock.spark.files.blocks_plan import check_stamp, keyring
from penstock.store.tools.inspection import read_block as inspect_block
from penstock.store.tools.store_reader import missing_ranges, read_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.records.record_columns import RecordColumns
    from penstock.spark.files.blocks_location import Stamp
    from penstock.spark.files.blocks_plan import ArchiveTask, StoreTask
    from penstock.spark.files.blocks_source import DamageRow
    from penstock.store.tools.store_reader import BlockPlan

RANGES_SHOWN: Final = 5


class DamagedBlock(Exception):
    """Stored messages can no longer be read."""

    def __init__(self, stream: str, what: str) -> None:
        super().__init__(
            f"stream {stream} is damaged: {what}. Read with failOnDamage=false to go on without "
            "these messages, or with damage=true to see all of them"
        )


def read_store(task: StoreTask, key_file: str, *, fail_on_damage: bool) -> Iterator[Batch]:
    """Yield the live messages of a task's blocks."""
    for block, stamp in task.blocks:
        count = 0
        seqs: list[bytes] = []
        for columns in _columns(task, block, stamp, key_file):
            count += columns.rows
            seqs.append(columns.seqs)
            yield batch_of(columns)
        if count < block.messages and fail_on_damage:
            ranges = missing_ranges(block, _numbers(seqs))[:RANGES_SHOWN]
            shown = ", ".join(f"{first}-{last}" for first, last in ranges)
            raise DamagedBlock(task.stream, f"{block.name} has lost messages {shown}")


def _columns(
    task: StoreTask, block: BlockPlan, stamp: Stamp, key_file: str
) -> Iterator[RecordColumns]:
    keys = keyring(task.messages, task.incarnation, key_file, task.storage)
    check_stamp(task, block.name, stamp)
    disk = disk_at(task.messages, task.storage)
    try:
        yield from read_block(disk, block, keys, rows_max=BATCH_ROWS, bytes_max=BATCH_BYTES)
    finally:
        disk.close()
    check_stamp(task, block.name, stamp)


def _numbers(pieces: list[bytes]) -> Iterator[int]:
    for piece in pieces:
        yield from memoryview(piece).cast("q")


def read_archive(task: ArchiveTask, first: int, last: int) -> Iterator[Batch]:
    """Yield the messages of a backup between two sequences, both included."""
    for batch in batches(Path(task.archive)):
        if batch.first > last:
            return
        if first <= batch.first and batch.last <= last:
            yield batch
        elif batch.last >= first:
            yield _within(batch, first, last)


def _within(batch: Batch, first: int, last: int) -> Batch:
    """Return the part of a batch between two sequences; it is not empty."""
    seqs = memoryview(batch.seqs).cast("q")
    start, stop = bisect_left(seqs, first), bisect_right(seqs, last)
    return Batch(
        stop - start,
        0,
        batch.seqs[8 * start : 8 * stop],
        batch.times[8 * start : 8 * stop],
        *_slice(batch.subjects, batch.subject_offsets, start, stop),
        *_slice(batch.headers, batch.header_offsets, start, stop),
        *_slice(batch.payloads, batch.payload_offsets, start, stop),
    )


def _slice(data: bytes, offsets: bytes, start: int, stop: int) -> tuple[bytes, bytes]:
    at = memoryview(offsets).cast("i")[start : stop + 1]
    return data[at[0] : at[-1]], array("i", (place - at[0] for place in at)).tobytes()


def damage_of(task: StoreTask, key_file: str) -> Iterator[DamageRow]:
    """Yield invalid byte ranges of a task's blocks, and the live messages that are lost with
    them."""
    keys = keyring(task.messages, task.incarnation, key_file, task.storage)
    for block, stamp in task.blocks:
        seqs = [columns.seqs for columns in _columns(task, block, stamp, key_file)]
        for first, last in missing_ranges(block, _numbers(seqs)):
            yield task.stream, block.name, first, last, None, None, "messages are lost"
        disk = disk_at(task.messages, task.storage)
        try:
            report = inspect_block(disk, block.name, task.incarnation, keys)
        finally:
            disk.close()
        for fault in report.faults if report is not None else ():
            yield task.stream, block.name, None, None, fault.start, fault.stop, fault.what
