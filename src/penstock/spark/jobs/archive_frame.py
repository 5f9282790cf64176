"""An archive as a DataFrame: the rows of one version, whatever is committed later.

Spark reads files in a directory itself. Spark without jars reads neither object stores nor Iceberg
tables, so tasks read files there.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

from penstock.spark.files.archive_storage import LocalStorage
from penstock.spark.jobs.archive_scan import archive_schema, scan_of
from penstock.spark.message_rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.jobs.archive_job import ArchiveTable
    from penstock.spark.jobs.archive_scan import ArchiveScan
    from penstock.spark.jobs.parquet_table import Version


def archived(spark: SparkSession, table: ArchiveTable, version: Version) -> DataFrame:
    """Return the messages of a version, their date, and the partition token."""
    schema = archive_schema(table, version)
    if not version.files:
        return spark.createDataFrame([], schema)
    storage = table.storage
    if isinstance(storage, LocalStorage):
        base = "/".join(part for part in (storage.root, table.data) if part)
        read = spark.read.schema(schema).option("basePath", base)
        return read.parquet(*(f"{storage.root}/{file.path}" for file in version.files))
    scan, tasks = scan_of(table, version, arrow_schema(schema))
    rows = [(pickle.dumps(task),) for task in tasks]
    files = spark.createDataFrame(rows, "task binary").repartition(len(rows))
    return files.mapInArrow(_reader(scan), schema)


def _reader(scan: ArchiveScan) -> Callable[[Iterable[Any]], Iterator[Any]]:
    def read(batches: Iterable[Any]) -> Iterator[Any]:
        for batch in batches:
            for task in batch.column(0).to_pylist():
                yield from scan.rows(pickle.loads(task))

    return read
