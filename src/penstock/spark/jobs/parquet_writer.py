"""Tasks that write messages to Parquet files, one file per partition at a time.

A task gets batches in ascending sequence and yields one row for each finished file, which the
driver commits. Names are unique, so a task that runs twice or is killed leaves files that no
version references, and never an incomplete file under a referenced name.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from penstock.spark.jobs.archive_columns import row_schema
from penstock.spark.jobs.parquet_table import ArchiveError, DataFile
from penstock.spark.message_rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.parquet_table import Version

FILE_BYTES: Final = 128 << 20
"""A file is finished at about this compressed size."""
OPEN_BYTES_MAX: Final = 256 << 20
"""Limit for the total size of unfinished files; above it the largest is finished."""
ROW_GROUP_ROWS: Final = 100_000
COMPRESSION: Final = "zstd"
DATE: Final = "date"
TIME_FORMATS: Final = {
    DATE: "%Y-%m-%d",
    "timestamp_hour": "%Y-%m-%d-%H",
    "timestamp_day": "%Y-%m-%d",
    "timestamp_month": "%Y-%m",
    "timestamp_year": "%Y",
}
"""Formats of the values of time partitions, by partition column. Iceberg's transforms have the
longer names; `date` is a column."""
TIMES: Final = ("hour", "day", "month", "year", "none")
DAY: Final = "day"
FIELD_ID: Final = b"PARQUET:field_id"
TOKEN_VALUES_MAX: Final = 500
"""Limit for the number of values of the partition token: each has its own files, every day."""
STATS_TEXT_MAX: Final = 256
"""A longer subject is not recorded as a bound of a file."""
TOKEN_PREFIX: Final = "token_"
"""Followed by the index of the token in the subject, from 0."""
NO_TOKEN: Final = "__HIVE_DEFAULT_PARTITION__"
"""Partition value for subjects without that token; readers treat it as null."""
FILE_SCHEMA: Final = "file string"

Values = tuple[str, ...]


def partition_columns(token: int | None) -> tuple[str, ...]:
    """Return the partition columns of an archive in directories."""
    return (DATE,) if token is None else (DATE, f"{TOKEN_PREFIX}{token}")


@dataclass(frozen=True, slots=True)
class FileLayout:
    """Layout of the files: their directory, the partition by time and optionally by a token.

    `schema` is the Arrow schema of the files; without one they have the columns of messages. Fields
    with an id (`FIELD_ID`) are matched by it in files that are read back.
    """

    storage: ArchiveStorage
    directory: str
    partition_by: tuple[str, ...] = (DATE,)
    schema: Any = None
    token_values_max: int = TOKEN_VALUES_MAX

    @property
    def token_name(self) -> str:
        """Name of the token column; empty if there is none."""
        return next((name for name in self.partition_by if name.startswith(TOKEN_PREFIX)), "")

    def file_schema(self) -> Any:
        return arrow_schema() if self.schema is None else self.schema

    def fitted(self, batch: Any) -> Any:
        """Return a batch with exactly the columns of the files; a missing column becomes null, or
        the subject token it is named after."""
        import pyarrow as pa

        schema = self.file_schema()
        ids = {_field_id(one): n for n, one in enumerate(batch.schema) if _field_id(one)}
        arrays = []
        for wanted in schema:
            at = ids.get(_field_id(wanted), batch.schema.get_field_index(wanted.name))
            if at >= 0:
                column = batch.column(at)
            elif wanted.name.startswith(TOKEN_PREFIX):
                column = tokens_of(batch.column("subject"), _token(wanted.name))
            else:
                column = pa.nulls(batch.num_rows)
            arrays.append(column.cast(wanted.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def path(self, values: Values, first_seq: int) -> str:
        named = (f"{name}={value}" for name, value in zip(self.partition_by, values, strict=True))
        parts = [self.directory, *named, f"{first_seq:020d}-{uuid.uuid4().hex[:16]}.parquet"]
        return "/".join(part for part in parts if part)


def plain_layout(
    storage: ArchiveStorage, directory: str, version: Version, schema: Any
) -> FileLayout:
    """Return a layout in directories, whose files have the columns of the rows."""
    wanted = arrow_schema(row_schema(version)) if schema is None else schema
    return FileLayout(storage, directory, version.partition_by, wanted)


def file_writer(layout: FileLayout) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow`: messages in, one row (`FILE_SCHEMA`) per file out."""

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for made in written(layout, batches):
            yield pa.RecordBatch.from_pydict({"file": [msgspec.json.encode(made).decode()]})

    return write


def written(layout: FileLayout, batches: Iterable[Any]) -> Iterator[DataFile]:
    """Write the rows of all batches; yield the files."""
    files: dict[Values, _File] = {}
    seen: set[Values] = set()
    for given in batches:
        batch = layout.fitted(given)  # times in UTC, whatever the session's time zone
        for values, rows in partitioned(layout, batch):
            file = files.get(values)
            if file is None:
                file = files[values] = _File(layout, values)
                seen.add(values)
                if layout.token_name:
                    _check_count(layout, {one[-1] for one in seen})
            file.add(rows)
            if file.size >= FILE_BYTES:
                yield files.pop(values).finish()
        while sum(file.size for file in files.values()) > OPEN_BYTES_MAX:
            largest = max(files, key=lambda values: files[values].size)
            yield files.pop(largest).finish()
    for file in files.values():
        yield file.finish()


def check_tokens(layout: FileLayout, files: Iterable[DataFile]) -> None:
    """Raise `ArchiveError` if the partition token has too many values."""
    if layout.token_name:
        _check_count(layout, {file.partition[layout.token_name] for file in files})


def _check_count(layout: FileLayout, values: set[str]) -> None:
    if len(values) > layout.token_values_max:
        raise ArchiveError(
            f"{layout.token_name} has more than {layout.token_values_max} values, and each has "
            "files of its own: partition by a token with fewer, or allow more of them"
        )


def written_as(layout: FileLayout, partition: dict[str, str], batches: Iterable[Any]) -> DataFile:
    """Write the rows of all batches, which belong to one partition and are not empty, to one
    file."""
    values = tuple(partition[name] for name in layout.partition_by)
    file: _File | None = None
    for batch in batches:
        file = file or _File(layout, values)
        file.add(layout.fitted(batch))
    assert file is not None
    return file.finish()


def partitioned(layout: FileLayout, batch: Any) -> Iterator[tuple[Values, Any]]:
    """Yield the rows of a batch by partition."""
    import pyarrow.compute as pc

    if batch.num_rows == 0:
        return
    keys = [
        pc.strftime(batch.column("timestamp"), format=TIME_FORMATS[name])
        if name in TIME_FORMATS
        else _directories(batch.column("subject"), _token(name))
        for name in layout.partition_by
    ]
    if not keys:
        yield (), batch
        return
    joined = keys[0] if len(keys) == 1 else pc.binary_join_element_wise(*keys, "/")
    found = pc.unique(joined).to_pylist()
    for key in found:
        rows = batch if len(found) == 1 else batch.filter(pc.equal(joined, key))
        yield tuple(key.split("/")), rows


def tokens_of(subjects: Any, token: int) -> Any:
    """Return one token of each subject, counted from 0; null where there is none."""
    import pyarrow as pa

    encoded = subjects.dictionary_encode()
    found = [
        parts[token] if len(parts) > token else None
        for parts in (subject.split(".") for subject in encoded.dictionary.to_pylist())
    ]
    return pa.array(found, pa.string()).take(encoded.indices)


def _directories(subjects: Any, token: int) -> Any:
    """Return the same, encoded for use as a directory name."""
    import pyarrow as pa

    encoded = tokens_of(subjects, token).dictionary_encode("encode")
    names = [
        NO_TOKEN if value is None else quote(value, safe="-_")
        for value in encoded.dictionary.to_pylist()
    ]
    return pa.array(names, pa.string()).take(encoded.indices)


def _token(name: str) -> int:
    return int(name.removeprefix(TOKEN_PREFIX))


def _field_id(field: Any) -> bytes | None:
    found: bytes | None = (field.metadata or {}).get(FIELD_ID)
    return found


@dataclass(slots=True)
class _File:
    """An unfinished Parquet file, in memory."""

    layout: FileLayout
    values: Values
    rows: int = 0
    _bounds: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    _sink: Any = field(init=False)
    _writer: Any = field(init=False)

    def __post_init__(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(
            self._sink, self.layout.file_schema(), compression=COMPRESSION
        )

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, rows: Any) -> None:
        import pyarrow.compute as pc

        for name in ("seq", "timestamp", "subject"):
            column = rows.column(name)
            if name == "timestamp":
                column = column.cast("int64")
            found = pc.min_max(column)
            low, high = found["min"].as_py(), found["max"].as_py()
            before = self._bounds.get(name, (low, high))
            self._bounds[name] = min(low, before[0]), max(high, before[1])
        self.rows += rows.num_rows
        self._writer.write_batch(rows, row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> DataFile:
        self._writer.close()
        data = self._sink.getvalue()
        first_seq, last_seq = self._bounds["seq"]
        first_us, last_us = self._bounds["timestamp"]
        subjects = self._bounds["subject"]
        if max(map(len, subjects)) > STATS_TEXT_MAX:
            subjects = ("", "")
        path = self.layout.path(self.values, first_seq)
        self.layout.storage.write(path, memoryview(data))
        return DataFile(
            path,
            self.rows,
            data.size,
            first_seq,
            last_seq,
            dict(zip(self.layout.partition_by, self.values, strict=True)),
            first_us,
            last_us,
            *subjects,
        )
