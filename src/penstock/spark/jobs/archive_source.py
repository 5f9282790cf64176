"""The format `penstock-archive`: an archive of a stream as a table, whatever its form.

Parquet, Delta and Iceberg archives have the same columns here: those of the format `jetstream`,
`date`, the partition token, and the further columns of an Iceberg table. Files that cannot hold a
wanted row are skipped when the query is planned, by the options and, if Spark passes them on, by
the query's filters; tasks skip row groups by the same bounds. A query reads one version: the newest
at planning time.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.spark.compat import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)
from penstock.spark.files.archive_options import SEQ_MAX, parse_archive
from penstock.spark.jobs.archive_job import open_archive
from penstock.spark.jobs.archive_scan import (
    ArchiveScan,
    FileTask,
    Wanted,
    archive_schema,
    day_us,
    scan_of,
)
from penstock.spark.jobs.parquet_table import ArchiveError
from penstock.spark.jobs.parquet_writer import DATE, TOKEN_PREFIX
from penstock.spark.message_rows import arrow_schema
from penstock.spark.options import OptionError
from penstock.spark.read.filter_pushdown import Narrowing, Pushing, narrowed
from penstock.spark.read.prefetch import ahead
from penstock.spark.read.start_positions import US_NS, AtTime, Earliest, places

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql.types import StructType

    from penstock.spark.compat import Filter
    from penstock.spark.files.archive_options import ArchiveOptions
    from penstock.spark.jobs.archive_job import ArchiveTable
    from penstock.spark.jobs.parquet_table import Version


class PenstockArchive(DataSource):
    """Data source for archives of streams."""

    @classmethod
    def name(cls) -> str:
        return "penstock-archive"

    def schema(self) -> StructType:
        table, version = self._opened()
        return archive_schema(table, version)

    def reader(self, schema: StructType) -> DataSourceReader:
        table, version = self._opened()
        _check_schema(schema, archive_schema(table, version))
        options, _ = parse_archive(self.options)
        return ArchiveReader(options, table, version, schema)

    def _opened(self) -> tuple[ArchiveTable, Version]:
        options, storage = parse_archive(self.options)
        table = open_archive(options.path, storage_options=storage)
        version = table.current()
        if not version.stream:
            raise ArchiveError(f"there is no archive at {options.path}")
        return table, version


class ArchivePartition(InputPartition):
    """A task: some files, and how they are read."""

    def __init__(self, scan: ArchiveScan, files: tuple[FileTask, ...]) -> None:
        super().__init__(None)
        self.scan = scan
        self.files = files


class ArchiveReader(DataSourceReader):
    """Plans in the driver, reads in tasks."""

    def __init__(
        self, options: ArchiveOptions, table: ArchiveTable, version: Version, schema: StructType
    ) -> None:
        self._scan: tuple[ArchiveTable, Version] | None = (table, version)
        self._schema = arrow_schema(schema)
        self._size_max = options.max_partition_bytes
        self._wanted = wanted_of(options)
        self.pushFilters = Pushing(self._take_filters)  # type: ignore[method-assign]

    def _take_filters(self, filters: list[Filter]) -> list[Filter]:
        """Skip files and row groups; return all filters, since Spark still checks each row."""
        self._wanted = filtered(self._wanted, filters)
        return filters

    def partitions(self) -> list[InputPartition]:
        assert self._scan is not None
        scan, tasks = scan_of(*self._scan, self._schema, self._wanted)
        return [ArchivePartition(scan, group) for group in grouped(tasks, self._size_max)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if not isinstance(partition, ArchivePartition):
            return iter(())  # Spark creates an empty partition when there is no file
        rows = (batch for task in partition.files for batch in partition.scan.rows(task))
        return ahead(rows)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_scan": None}  # the client of a catalog cannot be pickled


def wanted_of(options: ArchiveOptions) -> Wanted:
    """Return the bounds that the options set."""
    first = _micros("startingTimestamp", options.starting_timestamp)
    stop = _micros("endingTimestamp", options.ending_timestamp)
    return Wanted(
        first_seq=max(1, options.starting_seq),
        last_seq=None if options.ending_seq == SEQ_MAX else options.ending_seq,
        first_us=first,
        last_us=None if stop is None else stop - 1,
    )


def filtered(wanted: Wanted, filters: Iterable[Filter]) -> Wanted:
    """Narrow the bounds by the filters of a query."""
    given = list(filters)
    found = _narrowed(wanted, narrowed(given))
    for one in given:
        name = getattr(one, "attribute", None)
        if name == (DATE,):
            found = _by_date(found, one)
        elif name is not None and len(name) == 1 and name[0].startswith(TOKEN_PREFIX):
            found = _by_token(found, name[0], one)
    return found


def _narrowed(wanted: Wanted, found: Narrowing) -> Wanted:
    last = [one for one in (wanted.last_seq, found.last_seq) if one is not None]
    first_us = [wanted.first_us, None if found.first_ns is None else found.first_ns // US_NS]
    last_us = [wanted.last_us, None if found.stop_ns is None else (found.stop_ns - 1) // US_NS]
    literal = found.subjects is not None and not any(one.endswith(">") for one in found.subjects)
    return replace(
        wanted,
        first_seq=max(wanted.first_seq, found.first_seq),
        last_seq=min(last, default=None),
        first_us=max((one for one in first_us if one is not None), default=None),
        last_us=min((one for one in last_us if one is not None), default=None),
        subjects=found.subjects if literal else wanted.subjects,
    )


def _by_date(wanted: Wanted, one: Filter) -> Wanted:
    """Convert bounds in whole days to bounds of times."""
    values = list(one.value) if isinstance(one, In) else [getattr(one, "value", None)]
    days = [day for day in values if isinstance(day, date) and not isinstance(day, datetime)]
    if not days or len(days) != len(values):
        return wanted
    first, last = day_us(min(days))[0], day_us(max(days))[1]
    low, high = wanted.first_us, wanted.last_us
    if isinstance(one, EqualTo | In | GreaterThanOrEqual):
        low = first if low is None else max(low, first)
    elif isinstance(one, GreaterThan):
        low = last + 1 if low is None else max(low, last + 1)
    if isinstance(one, EqualTo | In | LessThanOrEqual):
        high = last if high is None else min(high, last)
    elif isinstance(one, LessThan):
        high = first - 1 if high is None else min(high, first - 1)
    return replace(wanted, first_us=low, last_us=high)


def _by_token(wanted: Wanted, name: str, one: Filter) -> Wanted:
    if not isinstance(one, EqualTo | In):
        return wanted
    values = one.value if isinstance(one, In) else [one.value]
    directories = frozenset(quote(str(value), safe="-_") for value in values)
    return replace(wanted, partitions=(*wanted.partitions, (name, directories)))


def grouped(tasks: list[FileTask], size_max: int) -> Iterator[tuple[FileTask, ...]]:
    """Group files into tasks of about this size."""
    waiting: list[FileTask] = []
    size = 0
    for task in tasks:
        if waiting and size + task.file.size > size_max:
            yield tuple(waiting)
            waiting, size = [], 0
        waiting.append(task)
        size += task.file.size
    if waiting:
        yield tuple(waiting)


def _check_schema(schema: StructType, ours: StructType) -> None:
    """Raise unless the user's schema has a subset of the archive's columns, with their types."""
    kinds = {field.name: field.dataType.simpleString() for field in ours.fields}
    for field in schema.fields:
        if field.name not in kinds:
            raise OptionError(f"there is no column {field.name}: there are {', '.join(kinds)}")
        if field.dataType.simpleString() != kinds[field.name]:
            raise OptionError(
                f"column {field.name} is {kinds[field.name]}, not "
                f"{field.dataType.simpleString()}: cast it where you use it"
            )


def _micros(name: str, text: str) -> int | None:
    found = places((name,), seq=("", ""), timestamp=(name, text), default=Earliest())[name]
    return -(-found.time_ns // US_NS) if isinstance(found, AtTime) else None
