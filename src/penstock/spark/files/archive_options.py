"""Options of the format `penstock-archive`: which archive, and which part of it.

Options of the archive's object store or catalog have the prefix `storage.`; the rest of the name is
passed on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

from msgspec import Meta

from penstock.spark.options import Doc, SparkOptions, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

SEQ_MAX: Final = 2**63 - 1
PARTITION_BYTES: Final = 128 << 20
STORAGE: Final = "storage."

Sequence = Annotated[int, Meta(ge=0)]
Size = Annotated[int, Meta(ge=1)]


class ArchiveOptions(SparkOptions, frozen=True, kw_only=True):
    """Archives of streams as `penstock pipeline archive` writes them: Parquet, Delta and Iceberg.
    Options of the object store or the catalog have the prefix `storage.`, such as
    `storage.endpoint`, `storage.type`, `storage.uri`."""

    # What to read
    path: Annotated[
        str,
        Doc(
            "A directory, a URL such as `s3://bucket/place`, or `iceberg://catalog/namespace.table`"
            "; also set by `load(…)`."
        ),
    ]
    starting_seq: Annotated[Sequence, Doc("The first sequence to read.")] = 0
    ending_seq: Annotated[Sequence, Doc("The last sequence to read.")] = SEQ_MAX
    starting_timestamp: Annotated[
        str, Doc("Read messages at or after it: ISO 8601, or milliseconds since 1970.")
    ] = ""
    ending_timestamp: Annotated[str, Doc("Read messages before it: as above.")] = ""
    # Tasks
    max_partition_bytes: Annotated[
        Size, Doc("How much of the files one task reads; a task has one file at least.")
    ] = PARTITION_BYTES


def parse_archive(given: Mapping[str, str]) -> tuple[ArchiveOptions, dict[str, str]]:
    """Return the options, and the storage options without their prefix."""
    others, storage = split_storage(given)
    return parse(ArchiveOptions, others), storage


def split_storage(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return the options of a format, and those of its object store without their prefix."""
    storage = {
        name[len(STORAGE) :]: value
        for name, value in given.items()
        if name.lower().startswith(STORAGE)
    }
    return {
        name: value for name, value in given.items() if not name.lower().startswith(STORAGE)
    }, storage
