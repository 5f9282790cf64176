"""An archive as a DataFrame: the rows of one version, whatever is committed meanwhile.

Files in a directory are read by Spark itself. Spark without Hadoop's cloud jars reads no object
store, so files there are fetched by tasks, which know the storage anyway; that reads all columns.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any, Final

from penstock.spark.jobs.storage import LocalStorage
from penstock.spark.jobs.writing import DATE
from penstock.spark.rows import arrow_schema, message_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.spark.jobs.archive import ArchiveTable
    from penstock.spark.jobs.storage import Storage
    from penstock.spark.jobs.table import Version

FILES_PER_TASK: Final = 1


def archived(spark: SparkSession, table: ArchiveTable, version: Version) -> DataFrame:
    """The messages of a version, and the columns it is partitioned by."""
    schema = archive_schema(version.partition_by)
    paths = [file.path for file in version.files]
    if not paths:
        return spark.createDataFrame([], schema)
    storage = table.storage
    if isinstance(storage, LocalStorage):
        base = "/".join(part for part in (storage.root, table.data) if part)
        read = spark.read.schema(schema).option("basePath", base)
        return read.parquet(*(f"{storage.root}/{path}" for path in paths))
    rows = [(file.path, [file.partition[name] for name in version.partition_by])
            for file in version.files]  # fmt: skip
    tasks = spark.createDataFrame(rows, "path string, partition array<string>")
    return tasks.repartition(len(rows) // FILES_PER_TASK).mapInArrow(
        _fetcher(storage, version.partition_by), schema
    )


def archive_schema(partition_by: tuple[str, ...]) -> StructType:
    """What Spark is told of an archive."""
    schema = message_schema()
    for name in partition_by:
        schema = schema.add(name, "date" if name == DATE else "string")
    return schema


def _fetcher(
    storage: Storage, partition_by: tuple[str, ...]
) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def fetch(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.to_pylist():
                yield from _rows(storage, task["path"], partition_by, task["partition"])

    return fetch


def _rows(
    storage: Storage, path: str, partition_by: tuple[str, ...], values: list[str]
) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema(archive_schema(partition_by))
    for batch in pq.ParquetFile(io.BytesIO(storage.read(path))).iter_batches():
        for name, value in zip(partition_by, values, strict=True):
            column = pa.repeat(pa.scalar(value), batch.num_rows)
            batch = batch.append_column(name, column.cast(schema.field(name).type))
        yield batch.cast(schema)
