"""Tasks that write messages into Parquet files: one after the other, a file for each partition.

A task gets batches in ascending sequence and yields one row for each file it has finished, which
the driver commits. Names are new every time, so a task that is run twice, or killed, leaves files
that nobody names, never a half-written one under a name that somebody does.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import msgspec

from penstock.spark.jobs.table import DataFile
from penstock.spark.rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from penstock.spark.jobs.storage import Storage

FILE_BYTES: Final = 128 << 20
"""A file is finished when it has about so much, compressed."""
OPEN_BYTES_MAX: Final = 256 << 20
"""What files not yet finished may hold together; then the largest is finished."""
ROW_GROUP_ROWS: Final = 100_000
COMPRESSION: Final = "zstd"
DATE: Final = "date"
TOKEN_PREFIX: Final = "token_"
"""Followed by which token of the subject it is, from 0."""
NO_TOKEN: Final = "__HIVE_DEFAULT_PARTITION__"
"""How partitions are called whose subject has no such token; readers take it for null."""
FILE_SCHEMA: Final = "file string"

Values = tuple[str, ...]


def partition_columns(token: int | None) -> tuple[str, ...]:
    """What an archive is partitioned by."""
    return (DATE,) if token is None else (DATE, f"{TOKEN_PREFIX}{token}")


@dataclass(frozen=True, slots=True)
class Layout:
    """How messages are laid out: below which directory, by date, perhaps by a token."""

    storage: Storage
    directory: str
    partition_by: tuple[str, ...] = (DATE,)

    def path(self, values: Values, first_seq: int) -> str:
        named = (f"{name}={value}" for name, value in zip(self.partition_by, values, strict=True))
        parts = [self.directory, *named, f"{first_seq:020d}-{uuid.uuid4().hex[:16]}.parquet"]
        return "/".join(part for part in parts if part)


def file_writer(layout: Layout) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """For `mapInArrow`: messages in, a row (`FILE_SCHEMA`) for every file out."""

    def write(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for made in written(layout, batches):
            yield pa.RecordBatch.from_pydict({"file": [msgspec.json.encode(made).decode()]})

    return write


def written(layout: Layout, batches: Iterable[Any]) -> Iterator[DataFile]:
    """The files that hold the rows of all batches."""
    files: dict[Values, _File] = {}
    schema = arrow_schema()
    for given in batches:
        batch = given.select(schema.names).cast(schema)  # times in UTC, whatever the session's zone
        for values, rows in partitioned(layout, batch):
            file = files.get(values)
            if file is None:
                file = files[values] = _File(layout, values, rows.schema)
            file.add(rows)
            if file.size >= FILE_BYTES:
                yield files.pop(values).finish()
        while sum(file.size for file in files.values()) > OPEN_BYTES_MAX:
            largest = max(files, key=lambda values: files[values].size)
            yield files.pop(largest).finish()
    for file in files.values():
        yield file.finish()


def written_as(layout: Layout, partition: dict[str, str], batches: Iterable[Any]) -> DataFile:
    """One file with the rows of all batches, which are of one partition and not empty."""
    values = tuple(partition[name] for name in layout.partition_by)
    file: _File | None = None
    for batch in batches:
        file = file or _File(layout, values, batch.schema)
        file.add(batch)
    assert file is not None
    return file.finish()


def partitioned(layout: Layout, batch: Any) -> Iterator[tuple[Values, Any]]:
    """The rows of a batch by partition, as they go into files: without the partition's columns."""
    import pyarrow.compute as pc

    if batch.num_rows == 0:
        return
    keys = [
        pc.strftime(batch.column("timestamp"), format="%Y-%m-%d"),
        *(
            _tokens(batch.column("subject"), int(name.removeprefix(TOKEN_PREFIX)))
            for name in layout.partition_by[1:]
        ),
    ]
    joined = keys[0] if len(keys) == 1 else pc.binary_join_element_wise(*keys, "/")
    found = pc.unique(joined).to_pylist()
    for key in found:
        rows = batch if len(found) == 1 else batch.filter(pc.equal(joined, key))
        yield tuple(key.split("/")), rows


def _tokens(subjects: Any, token: int) -> Any:
    """One token of each subject, written so that it can name a directory."""
    import pyarrow as pa

    encoded = subjects.dictionary_encode()
    names = [
        quote(parts[token], safe="-_") if len(parts) > token else NO_TOKEN
        for parts in (subject.split(".") for subject in encoded.dictionary.to_pylist())
    ]
    return pa.array(names, pa.string()).take(encoded.indices)


@dataclass(slots=True)
class _File:
    """A Parquet file on its way, in memory."""

    layout: Layout
    values: Values
    schema: Any
    rows: int = 0
    first_seq: int = 0
    last_seq: int = 0
    _sink: Any = field(init=False)
    _writer: Any = field(init=False)

    def __post_init__(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self._sink = pa.BufferOutputStream()
        self._writer = pq.ParquetWriter(self._sink, self.schema, compression=COMPRESSION)

    @property
    def size(self) -> int:
        return int(self._sink.tell())

    def add(self, rows: Any) -> None:
        import pyarrow.compute as pc

        seqs = pc.min_max(rows.column("seq"))
        self.first_seq = min(self.first_seq or seqs["min"].as_py(), seqs["min"].as_py())
        self.last_seq = max(self.last_seq, seqs["max"].as_py())
        self.rows += rows.num_rows
        self._writer.write_batch(rows, row_group_size=ROW_GROUP_ROWS)

    def finish(self) -> DataFile:
        self._writer.close()
        data = self._sink.getvalue()
        path = self.layout.path(self.values, self.first_seq)
        self.layout.storage.write(path, memoryview(data))
        partition = dict(zip(self.layout.partition_by, self.values, strict=True))
        return DataFile(path, self.rows, data.size, self.first_seq, self.last_seq, partition)
