"""Store the options of a table created by SQL in the table's schema.

Spark passes the options of `CREATE TABLE … USING` to a source when it requests the schema, and
passes none when the table is read. So they are kept in the metadata of the schema's first column;
other reads have no such metadata. Secrets, and a URL with a password, are rejected: before it calls
the source, Spark writes the statement's options to the event log and the UI graph, where no setting
redacts them.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from msgspec.structs import fields

from penstock.spark.options import PATH_OPTION, SPARKS_OWN, TABLE_MARK, OptionError, is_secret

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from penstock.spark.options import SparkOptions

KEY: Final = "penstock.options"
URL: Final = "url"
FILES: Final = "Name a credsFile or nkeySeedFile in the table"


def is_of_table(options: Mapping[str, str]) -> bool:
    """Return True if these are the options of a table that is being created."""
    return any(name.lower().startswith(TABLE_MARK) for name in options)


def check_secrets(
    options: Mapping[str, str], kind: type[SparkOptions], instead: str = FILES
) -> None:
    """Raise if a CREATE TABLE statement has secrets; the error names options, never values."""
    if not is_of_table(options):
        return
    secrets = {f.encode_name.lower(): f.encode_name for f in fields(kind) if is_secret(f)}
    found: set[str] = set()
    for name, value in options.items():
        plain = name.lower().removeprefix(TABLE_MARK)
        if plain == URL:
            if "@" in value:
                found.add("url with credentials")
        elif plain in secrets and value:
            found.add(secrets[plain])
    if found:
        raise OptionError(
            f"CREATE TABLE with {', '.join(sorted(found))}: Spark shows the options of this "
            f"statement in its event log and UI, so replace this secret. {instead}, or use CREATE "
            "TEMPORARY VIEW, which hides options"
        )


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the schema with the options, free of secrets, in its metadata."""
    kept = {
        name: value
        for name, value in options.items()
        if name.lower() not in SPARKS_OWN | {PATH_OPTION}
        and not name.lower().startswith(TABLE_MARK)
    }
    schema.fields[0].metadata = {KEY: json.dumps(kept)}
    return schema


def with_remembered(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read, merged over those stored in its table."""
    recorded = schema.fields[0].metadata.get(KEY, "{}") if schema.fields else "{}"
    given = {name.lower() for name in options}
    remembered = {k: v for k, v in json.loads(recorded).items() if k.lower() not in given}
    return {**remembered, **options}
