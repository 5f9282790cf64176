"""Compaction of an archive: joins small files into few large ones; the rows stay the same.

Adjacent files of one partition are joined up to the target size. The joined file is written next to
the others and replaces them in one commit; replaced files stay on disk for readers that began
earlier, until `vacuum`. A commit lost to another writer is not an error here: the next run joins
the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.spark.jobs.delta_table import DeltaArchive
from penstock.spark.jobs.parquet_table import CommitLost, DataFile
from penstock.spark.jobs.parquet_writer import FILE_SCHEMA, written_as

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import SparkSession

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.archive_job import ArchiveTable
    from penstock.spark.jobs.parquet_writer import FileLayout

TARGET_BYTES: Final = 128 << 20
SMALL_PART: Final = 2
"""A file smaller than the target size divided by this is small."""


def small_groups(files: Iterable[DataFile], target_bytes: int) -> list[list[DataFile]]:
    """Group small files to join: of one partition, adjacent by sequence, at least two."""
    groups: list[list[DataFile]] = []
    by_partition: dict[tuple[tuple[str, str], ...], list[DataFile]] = {}
    for file in sorted(files, key=lambda file: file.first_seq):
        if file.size * SMALL_PART < target_bytes:
            by_partition.setdefault(tuple(sorted(file.partition.items())), []).append(file)
    for waiting in by_partition.values():
        group: list[DataFile] = []
        for file in waiting:
            if group and sum(one.size for one in group) + file.size > target_bytes:
                groups.append(group)
                group = []
            group.append(file)
        groups.append(group)
    return [group for group in groups if len(group) > 1]


def compact(spark: SparkSession, table: ArchiveTable, *, target_bytes: int = TARGET_BYTES) -> int:
    """Join small files; return by how many the number of files decreased."""
    if isinstance(table, DeltaArchive):
        return table.compact(target_bytes) if table.exists() else 0
    base = table.current()
    groups = small_groups(table.joinable(base), target_bytes) if base.files else []
    if not groups:
        return 0
    rows = [(msgspec.json.encode(group).decode(),) for group in groups]
    layout = table.layout(base, None)
    made = (
        spark.createDataFrame(rows, "files string")
        .repartition(len(rows))
        .mapInArrow(_joiner(layout), FILE_SCHEMA)
        .collect()
    )
    added = [msgspec.json.decode(row.file, type=DataFile) for row in made]
    removed = [file.path for group in groups for file in group]
    try:
        table.commit(base, added, removed)
    except CommitLost:
        return 0
    return len(removed) - len(added)


def _joiner(layout: FileLayout) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def join(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            for text in batch.column(0).to_pylist():
                group = msgspec.json.decode(text, type=list[DataFile])
                made = written_as(layout, group[0].partition, _rows(layout.storage, group))
                yield pa.RecordBatch.from_pydict({"file": [msgspec.json.encode(made).decode()]})

    return join


def _rows(storage: ArchiveStorage, group: list[DataFile]) -> Iterator[Any]:
    import pyarrow.parquet as pq

    for file in group:
        with storage.open(file.path) as opened:
            yield from pq.ParquetFile(opened).iter_batches()
