"""Finds messages that the stream's limits removed while they were being archived.

Readers skip them and log that in their tasks; the job finds them as the sequences before the
stream's first message that are in no file of the step. Sequences deleted before the run count too,
because they cannot be distinguished. Streams that remove messages in normal operation (work queues,
a limit per subject) have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.spark.message_rows import SEQ

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.job_inputs import InputExtent
    from penstock.spark.jobs.parquet_table import DataFile

RANGES_MAX: Final = 100
"""Maximum number of ranges recorded per step; one range covers all further ones."""

Ranges = tuple[tuple[int, int], ...]


def removed_between(
    storage: ArchiveStorage, files: Iterable[DataFile], first: int, last: int, now: InputExtent
) -> tuple[int, Ranges]:
    """Return the number and ranges of sequences from `first` to `last` that the stream no longer
    has and the files of this step lack too; `now` is the stream after the step."""
    stop = min(last, now.first_seq - 1)
    if now.sheds or stop < first:
        return 0, ()
    found = missing(_sequences(storage, files, stop), first, stop)
    count = sum(end - start + 1 for start, end in found)
    if len(found) > RANGES_MAX:
        found = [*found[: RANGES_MAX - 1], (found[RANGES_MAX - 1][0], found[-1][1])]
    return count, tuple(found)


def missing(held: Iterable[int], first: int, last: int) -> list[tuple[int, int]]:
    """Return the ranges between `first` and `last` that contain no held sequence."""
    ranges = []
    position = first
    for seq in sorted(held):
        if seq > position:
            ranges.append((position, seq - 1))
        position = seq + 1
    if position <= last:
        ranges.append((position, last))
    return ranges


def _sequences(storage: ArchiveStorage, files: Iterable[DataFile], stop: int) -> list[int]:
    """Return the sequences up to `stop` in the files."""
    import pyarrow.parquet as pq

    held: list[int] = []
    for file in files:
        if file.first_seq <= stop:
            with storage.open(file.path) as opened:
                column = pq.ParquetFile(opened).read([SEQ]).column(SEQ)
            held += [seq for seq in column.to_pylist() if seq <= stop]
    return held
