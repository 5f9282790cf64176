"""Scan of an archive: selects the files that may hold wanted rows, and reads their rows as Arrow.

The driver skips files by what the archive records of them: partition, sequences, times and
subjects. The columns are those of the archive's rows, `date`, the partition token, and the further
columns of an Iceberg table.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

from penstock.spark.jobs.archive_columns import row_schema
from penstock.spark.jobs.iceberg_table import IcebergArchive
from penstock.spark.jobs.parquet_writer import DATE, NO_TOKEN, TOKEN_PREFIX
from penstock.spark.message_rows import SEQ, TIMESTAMP, message_schema

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructField, StructType

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.archive_job import ArchiveTable
    from penstock.spark.jobs.parquet_table import DataFile, Version

BATCH_ROWS: Final = 50_000
DAY_US: Final = 86_400_000_000
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Inclusive bounds of what is wanted; None is no bound. `partitions` lists the accepted values
    of partition columns."""

    first_seq: int = 1
    last_seq: int | None = None
    first_us: int | None = None
    last_us: int | None = None
    subjects: tuple[str, ...] | None = None
    partitions: tuple[tuple[str, frozenset[str]], ...] = ()

    def may_hold(self, file: DataFile) -> bool:
        """Return False if the recorded bounds of a file exclude every wanted row."""
        if file.last_seq and not self._overlaps(
            self.first_seq, self.last_seq, file.first_seq, file.last_seq
        ):
            return False
        times = _times_of(file)
        if times is not None and not self._overlaps(self.first_us, self.last_us, *times):
            return False
        if (
            self.subjects is not None
            and file.first_subject
            and not any(file.first_subject <= one <= file.last_subject for one in self.subjects)
        ):
            return False
        return all(
            name not in file.partition or file.partition[name] in values
            for name, values in self.partitions
        )

    def may_hold_rows(self, bounds: dict[str, tuple[Any, Any]]) -> bool:
        """Return the same for a row group, by the statistics of its columns."""
        seqs, times = bounds.get(SEQ), bounds.get(TIMESTAMP)
        if seqs is not None and not self._overlaps(self.first_seq, self.last_seq, *seqs):
            return False
        return times is None or self._overlaps(self.first_us, self.last_us, *map(_micros, times))

    def bound_columns(self) -> tuple[str, ...]:
        """Return the columns that rows are filtered by."""
        by_time = self.first_us is not None or self.last_us is not None
        by_seq = self.first_seq > 1 or self.last_seq is not None
        return (*((SEQ,) if by_seq else ()), *((TIMESTAMP,) if by_time else ()))

    def chosen(self, batch: Any) -> Any:
        """Return the rows of a batch within the bounds of sequences and times."""
        for name, low, high in (
            (SEQ, self.first_seq if self.first_seq > 1 else None, self.last_seq),
            (TIMESTAMP, self.first_us, self.last_us),
        ):
            if low is not None or high is not None:
                batch = _between(batch, name, low, high)
        return batch

    @staticmethod
    def _overlaps(first: int | None, last: int | None, low: int, high: int | None) -> bool:
        return not (
            (last is not None and low > last)
            or (first is not None and high is not None and high < first)
        )


@dataclass(frozen=True, slots=True)
class FileTask:
    """One file, and for an Iceberg table what PyIceberg needs to read it."""

    file: DataFile
    scan: Any = None


@dataclass(frozen=True, slots=True)
class ArchiveScan:
    """Description of a scan for the tasks. `schema` is the Arrow schema of their rows."""

    storage: ArchiveStorage
    schema: Any
    wanted: Wanted
    metadata: Any = field(default=None, repr=False)
    """Metadata of the table, if it is an Iceberg table."""

    def rows(self, task: FileTask) -> Iterator[Any]:
        """Yield the rows of a file, as record batches."""
        batches = self._plain(task.file) if task.scan is None else self._iceberg(task.scan)
        for batch in batches:
            chosen = self.wanted.chosen(batch)
            if chosen.num_rows:
                yield self._shaped(chosen, task.file)

    def _names(self, there: list[str]) -> list[str]:
        """Return the columns to read of a file that has these."""
        needed = {*self.schema.names, *self.wanted.bound_columns()}
        if DATE in needed and DATE not in there:
            needed.add(TIMESTAMP)
        return [name for name in there if name in needed] or [SEQ]

    def _plain(self, file: DataFile) -> Iterator[Any]:
        import pyarrow.parquet as pq

        with self.storage.open(file.path) as opened:
            parquet = pq.ParquetFile(opened)
            names = self._names(parquet.schema_arrow.names)
            groups = [n for n in range(parquet.num_row_groups) if self._keeps(parquet, n)]
            yield from parquet.iter_batches(
                BATCH_ROWS, row_groups=groups, columns=names, use_threads=False
            )

    def _keeps(self, parquet: Any, number: int) -> bool:
        group = parquet.metadata.row_group(number)
        bounds = {}
        for index in range(group.num_columns):
            column = group.column(index)
            stats = column.statistics
            if column.path_in_schema in (SEQ, TIMESTAMP) and stats and stats.has_min_max:
                bounds[column.path_in_schema] = stats.min, stats.max
        return self.wanted.may_hold_rows(bounds)

    def _iceberg(self, scan: Any) -> Iterator[Any]:
        from pyiceberg.io.pyarrow import ArrowScan

        schema = self.metadata.schema()
        top = [field.name for field in schema.fields]
        chosen = schema.select(*self._names(top))
        reading = ArrowScan(self.metadata, self.storage.io(), chosen, row_filter(self.wanted))  # type: ignore[attr-defined]
        return iter(reading.to_record_batches([scan]))

    def _shaped(self, batch: Any, file: DataFile) -> Any:
        """Return a batch with the columns of the schema, in its order and of its types."""
        import pyarrow as pa

        arrays = []
        for wanted in self.schema:
            at = batch.schema.get_field_index(wanted.name)
            if at >= 0:
                array = batch.column(at)
            elif wanted.name == DATE and DATE not in file.partition:
                array = batch.column(batch.schema.get_field_index(TIMESTAMP)).cast(pa.date32())
            else:
                array = pa.repeat(_partition_value(wanted.name, file), batch.num_rows)
            arrays.append(array.cast(wanted.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def scan_of(
    table: ArchiveTable, version: Version, schema: Any, wanted: Wanted | None = None
) -> tuple[ArchiveScan, list[FileTask]]:
    """Return the scan of one version of an archive, and the files to read."""
    asked = wanted or Wanted()
    kept = {file.path: file for file in version.files if asked.may_hold(file)}
    if isinstance(table, IcebergArchive):
        scans = {scan.file.file_path: scan for scan in table.scan_tasks(version)}
        tasks = [FileTask(file, scans[path]) for path, file in kept.items() if path in scans]
        return ArchiveScan(table.storage, schema, asked, table.table.metadata), tasks
    return ArchiveScan(table.storage, schema, asked), [FileTask(file) for file in kept.values()]


def archive_schema(table: ArchiveTable, version: Version) -> StructType:
    """Return the columns of an archive as Spark sees them."""
    from pyspark.sql.types import StructType

    more: list[StructField] = []
    if isinstance(table, IcebergArchive) and version.stream:
        more = table.spark_schema().fields
        there = {one.name for one in more}
        schema = StructType([one for one in message_schema().fields if one.name in there])
    else:
        schema = row_schema(version)
    schema = schema.add(DATE, "date")
    for name in version.partition_by:
        if name.startswith(TOKEN_PREFIX):
            schema = schema.add(name, "string")
    for one in more:
        if one.name not in schema.names:
            schema = schema.add(one)
    return schema


def row_filter(wanted: Wanted) -> Any:
    """Return the bounds as a PyIceberg expression."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.expressions.parser import parse

    terms = []
    if wanted.first_seq > 1:
        terms.append(f"{SEQ} >= {wanted.first_seq}")
    if wanted.last_seq is not None:
        terms.append(f"{SEQ} <= {wanted.last_seq}")
    if wanted.first_us is not None:
        terms.append(f"{TIMESTAMP} >= '{_instant(wanted.first_us)}'")
    if wanted.last_us is not None:
        terms.append(f"{TIMESTAMP} <= '{_instant(wanted.last_us)}'")
    return parse(" and ".join(terms)) if terms else AlwaysTrue()


def _between(batch: Any, name: str, low: int | None, high: int | None) -> Any:
    import pyarrow.compute as pc

    values = batch.column(batch.schema.get_field_index(name)).cast("int64")
    if low is not None:
        kept = pc.greater_equal(values, low)
        batch, values = batch.filter(kept), values.filter(kept)
    return batch if high is None else batch.filter(pc.less_equal(values, high))


def _times_of(file: DataFile) -> tuple[int, int] | None:
    """Return the time range of a file in microseconds; from its date if not recorded."""
    if file.first_us is not None and file.last_us is not None:
        return file.first_us, file.last_us
    if DATE not in file.partition:
        return None
    return day_us(date.fromisoformat(file.partition[DATE]))


def day_us(day: date) -> tuple[int, int]:
    """Return the first and the last microsecond of a day."""
    start = (day - EPOCH.date()).days * DAY_US
    return start, start + DAY_US - 1


def _partition_value(name: str, file: DataFile) -> Any:
    import pyarrow as pa

    text = file.partition.get(name)
    if text is None or text == NO_TOKEN:
        return pa.scalar(None, pa.string())
    return pa.scalar(date.fromisoformat(text) if name == DATE else unquote(text))


def _instant(micros: int) -> str:
    seconds, rest = divmod(micros, 1_000_000)
    return datetime.fromtimestamp(seconds, UTC).replace(microsecond=rest).isoformat()


def _micros(moment: Any) -> int:
    if isinstance(moment, int):
        return moment
    found: datetime = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (found - EPOCH) // timedelta(microseconds=1)
