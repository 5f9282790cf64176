"""Columns of an archive: those of messages, or with typed payloads `value` instead of `data`.

A version records its columns if they differ from those of messages, and every run must have the
same. An Iceberg table has its own schema, which may grow. Jobs that need raw payloads (replay,
fold) reject an archive that has only typed ones.
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
    """Return what a version records of its columns: Spark's JSON; empty for those of messages."""
    return "" if _kinds(schema) == _kinds(message_schema()) else schema.json()


def row_schema(version: Version) -> StructType:
    """Return the columns of the rows of a version, without the partition columns."""
    from pyspark.sql.types import StructType

    return StructType.fromJson(json.loads(version.columns)) if version.columns else message_schema()


def check_columns(version: Version, schema: StructType) -> None:
    """Raise `ArchiveError` unless rows have the columns of the archive, of the same types."""
    have, new = _kinds(row_schema(version)), _kinds(schema)
    differ = [name for name in {**have, **new} if have.get(name) != new.get(name)]
    if differ:
        raise ArchiveError(
            f"columns {', '.join(differ)} differ from those of the archive: archive with the same "
            "payload and payload schema, to another place, or as an Iceberg table, whose payload "
            "schema may grow"
        )


def check_raw(names: Iterable[str], purpose: str) -> None:
    """Raise `ArchiveError` if an archive has no raw payloads."""
    if DATA not in names:
        raise ArchiveError(
            f"the archive has typed payloads only: a {purpose} needs one that was made without "
            "--payload"
        )


def _kinds(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}
