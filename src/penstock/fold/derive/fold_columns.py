"""Reads folds as Arrow record batches, tables, pandas or Polars data frames, or Parquet files.

    key: string    value: binary, or the codec's type    revision: uint64    version: binary

If the version of an entry is a revision, `version` is null; otherwise `revision` is null. A value
that the codec cannot decode is null. Batches are created on demand, so a fold need not fit in
memory. Each page is consistent by itself; for one consistent state of a changing fold, read a copy.
A missing package raises an error that names it.
"""

from __future__ import annotations

import importlib
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, cast

import msgspec

from penstock.fold.errors import FoldStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas  # type: ignore[import-untyped]
    import polars
    import pyarrow

    from penstock.fold.derive.value_codecs import Codec
    from penstock.fold.store.contract import SnapshotReader
    from penstock.kv.kv_types import KvEntry

ROWS_PER_BATCH = 10_000


def record_batches(
    store: SnapshotReader,
    prefix: str = "",
    *,
    codec: Codec[Any] | None = None,
    value_type: pyarrow.DataType | None = None,
    rows: int = ROWS_PER_BATCH,
) -> pyarrow.RecordBatchReader:
    """Return a stream of record batches. Without `value_type`, the type of decoded values is
    inferred from the first batch."""
    arrow = _library("pyarrow", "install penstock[arrow]")
    entries = store.range(prefix)
    first = list(islice(entries, rows))
    values = _values(first, codec)
    if codec is None:
        value_type = arrow.binary()
    elif value_type is None:
        value_type = arrow.array(values).type
    schema = arrow.schema(
        [
            ("key", arrow.string()),
            ("value", value_type),
            ("revision", arrow.uint64()),
            ("version", arrow.binary()),
        ]
    )
    later = ((page, _values(page, codec)) for page in _pages(entries, rows))
    batches = (
        arrow.record_batch(_columns(page, decoded, schema), schema=schema)
        for page, decoded in chain([(first, values)] if first else [], later)
    )
    return arrow.RecordBatchReader.from_batches(schema, batches)


def to_table(store: SnapshotReader, prefix: str = "", **options: Any) -> pyarrow.Table:
    """Return the whole range as one table; options are those of `record_batches`."""
    return record_batches(store, prefix, **options).read_all()


def to_pandas(store: SnapshotReader, prefix: str = "", **options: Any) -> pandas.DataFrame:
    _library("pandas", "install pandas")
    return to_table(store, prefix, **options).to_pandas()


def to_polars(store: SnapshotReader, prefix: str = "", **options: Any) -> polars.DataFrame:
    frames = _library("polars", "install polars")
    return cast("polars.DataFrame", frames.from_arrow(to_table(store, prefix, **options)))


def write_parquet(
    store: SnapshotReader, path: Path | str, prefix: str = "", **options: Any
) -> None:
    """Write the range to a Parquet file, a batch at a time."""
    parquet = _library("pyarrow.parquet", "install penstock[arrow]")
    batches = record_batches(store, prefix, **options)
    with parquet.ParquetWriter(str(path), batches.schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _library(name: str, what_to_do: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise FoldStoreError(f"needs the {name} package: {what_to_do}") from error


def _pages(entries: Iterator[KvEntry], rows: int) -> Iterator[list[KvEntry]]:
    while page := list(islice(entries, rows)):
        yield page


def _values(page: list[KvEntry], codec: Codec[Any] | None) -> list[Any]:
    if codec is None:
        return [entry.value for entry in page]
    return [_decoded(codec, entry.value) for entry in page]


def _decoded(codec: Codec[Any], value: bytes) -> Any:
    try:
        decoded = codec.decode(value)
    except Exception:  # an application codec may raise anything
        return None
    dump = getattr(decoded, "model_dump", None)
    return msgspec.to_builtins(decoded if dump is None else dump(mode="json"))


def _columns(page: list[KvEntry], values: list[Any], schema: pyarrow.Schema) -> list[Any]:
    arrow = _library("pyarrow", "install penstock[arrow]")
    revisions = [entry.revision for entry in page]
    versions = [
        None if revision is not None else entry.version.raw
        for entry, revision in zip(page, revisions, strict=True)
    ]
    columns = ([entry.key for entry in page], values, revisions, versions)
    return [
        arrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
