"""The format `penstock-fold`: exported folds as tables, one task per artifact.

    key string, value binary, revision bigint, shard string, cursor bigint

A path names an artifact, a directory of artifacts, or a place where artifacts are published; each
artifact is one shard, identified by its name, with the cursor it is exactly consistent with. Every
byte is verified before a row is returned. A task reads the newest artifact of a published fold when
it runs; the cursor is in its rows.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from penstock.spark import table_options
from penstock.spark.files.fold_reader import Artifact, columns_of, find_artifacts
from penstock.spark.options import SECRET, Doc, OptionError, SparkOptions, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql.types import StructType

SCHEMA: Final = "key string, value binary, revision bigint, shard string, cursor bigint"
TYPES: Final = {
    "key": "string",
    "value": "binary",
    "revision": "bigint",
    "shard": "string",
    "cursor": "bigint",
}


class FoldOptions(SparkOptions, frozen=True, kw_only=True):
    """Exported folds. Local paths must be on every machine that runs a task."""

    path: Annotated[
        str,
        Doc(
            "An artifact's directory, a directory of them, or where they are published: a "
            "directory, `file://`, `s3://`, `gs://` or `az://`; also set by `load(…)`."
        ),
    ]
    prefix: Annotated[str, Doc("Only keys that begin so.")] = ""
    storage_options: Annotated[
        str,
        Doc("A JSON object for the object store: `endpoint`, `access_key_id`, `client_options`, …"),
        SECRET,
    ] = "{}"

    def storage(self) -> dict[str, Any]:
        try:
            return msgspec.json.decode(self.storage_options, type=dict[str, Any])
        except msgspec.MsgspecError:
            raise OptionError("option storageOptions: not a JSON object") from None


class PenstockFold(DataSource):
    """Data source for fold artifacts."""

    @classmethod
    def name(cls) -> str:
        return "penstock-fold"

    def schema(self) -> str:
        instead = "Set credentials of the object store in the environment"
        table_options.check_secrets(self.options, FoldOptions, instead)
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return FoldReader(parse(FoldOptions, self.options), wanted_columns(schema))


def wanted_columns(schema: StructType) -> tuple[str, ...]:
    """Return the columns of the schema; the user may omit columns but not change them."""
    for field in schema.fields:
        expected = TYPES.get(field.name)
        if expected != field.dataType.simpleString():
            known = ", ".join(f"{name} {kind}" for name, kind in TYPES.items())
            raise OptionError(f"column {field.name} cannot be read so; there are: {known}")
    return tuple(schema.names)


class ArtifactPartition(InputPartition):
    """One artifact."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact.shard)
        self.artifact = artifact


class FoldReader(DataSourceReader):
    """Reads every artifact that the path names."""

    def __init__(self, options: FoldOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def partitions(self) -> list[InputPartition]:
        found = find_artifacts(self._options.path, self._options.storage())
        if not found:
            raise OptionError(f"option path: there is no artifact at {self._options.path}")
        return [ArtifactPartition(artifact) for artifact in found]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        import pyarrow as pa

        assert isinstance(partition, ArtifactPartition)
        with tempfile.TemporaryDirectory(prefix="penstock-fold-") as scratch:
            options = self._options
            for rows in columns_of(
                partition.artifact, Path(scratch), options.storage(), options.prefix
            ):
                yield pa.RecordBatch.from_arrays(
                    [rows[name] for name in self._columns], names=list(self._columns)
                )
