"""The columns of an archive: those of messages, or with typed payloads `value` in place of `data`.

A version records its columns if they are others than those of messages, and every run must bring
the same. An Iceberg table knows its own columns and may get more. Jobs that need payloads as they
were stored (replay, fold) refuse an archive that has only typed ones.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from penstock.spark.jobs.parquet_table import ArchiveError
from penstock.spark.message_rows import DATA, message_schema

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql.types import StructType

    from penstock.spark.jobs.parquet_table import Version


def columns_of(schema: StructType) -> str:
    """What a version records of the columns of its rows: Spark's JSON; empty for messages."""
    return "" if _kinds(schema) == _kinds(message_schema()) else schema.json()


def row_schema(version: Version) -> StructType:
    """The columns that the rows of a version have, without those that it is partitioned by."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(version.columns)) if version.columns else message_schema()


def check_columns(version: Version, schema: StructType) -> None:
    """`ArchiveError` unless rows have the columns of the archive, of the same types."""
    have, new = _kinds(row_schema(version)), _kinds(schema)
    differ = [name for name in {**have, **new} if have.get(name) != new.get(name)]
    if differ:
        raise ArchiveError(
            f"columns {', '.join(differ)} differ from those of the archive: archive with the same "
            "payload and payload schema, to another place, or as an Iceberg table, whose payload "
            "schema may grow"
        )


def check_raw(names: Iterable[str], purpose: str) -> None:
    """`ArchiveError` if an archive has no payloads as they were stored."""
    if DATA not in names:
        raise ArchiveError(
            f"the archive has typed payloads only: a {purpose} needs one that was made without "
            "--payload"
        )


def _kinds(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
