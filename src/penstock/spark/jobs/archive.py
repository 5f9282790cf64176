"""From a stream to an archive: every message once, however often the job is stopped and begun anew.

The archive's own cursor says where to go on; a step reads a range behind it, writes its files and
commits files and cursor together. A job that dies in between leaves files nobody names. Another
stream of the same name, and messages that the stream dropped before they were archived, are told
and not passed over unless the caller says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from penstock.spark.jobs.compaction import TARGET_BYTES, compact
from penstock.spark.jobs.delta import DeltaArchive, flat
from penstock.spark.jobs.storage import storage_for
from penstock.spark.jobs.table import (
    VACUUM_GRACE_SECONDS,
    ArchiveError,
    DataFile,
    ManifestTable,
    Version,
)
from penstock.spark.jobs.writing import FILE_SCHEMA, Layout, file_writer, partition_columns
from penstock.spark.rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import SparkSession

    from penstock.spark.jobs.origins import Extent, Origin
    from penstock.spark.jobs.storage import Storage

SEQUENCES_PER_COMMIT: Final = 2_000_000
FORMS: Final = ("parquet", "delta")


class ArchiveTable(Protocol):
    """What an archive must be able to do."""

    kind: str
    data: str
    """The directory of its files."""
    storage: Storage

    def current(self) -> Version: ...

    def commit(
        self, base: Version, added: Iterable[DataFile], removed: Iterable[str] = (), **changes: Any
    ) -> Version: ...


@dataclass(frozen=True, slots=True)
class ArchiveReport:
    """What a run did, and what the archive holds now."""

    stream: str
    dest: str
    form: str
    rows_added: int
    commits: int
    files_joined: int
    version: int
    cursor: int
    rows: int
    files: int
    bytes: int


def _unheard(done: int, total: int) -> None:
    """Nobody watches."""


def open_archive(
    dest: str, form: str = "", storage_options: dict[str, Any] | None = None
) -> ArchiveTable:
    """The archive at a place, of whichever form it has; `form` says what a new one becomes."""
    if form not in ("", *FORMS):
        raise ArchiveError(f"form {form!r}: an archive is one of {', '.join(FORMS)}")
    storage = storage_for(dest, storage_options)
    delta = DeltaArchive(storage, arrow_schema(), flat(storage_options or {}))
    plain = ManifestTable(storage)
    there = "delta" if delta.exists() else "parquet" if plain.exists() else ""
    if there and form and form != there:
        raise ArchiveError(f"{dest} holds an archive of form {there}, not {form}")
    return delta if (there or form) == "delta" else plain


def archive(
    spark: SparkSession,
    origin: Origin,
    dest: str,
    *,
    form: str = "",
    token: int | None = None,
    until: int | None = None,
    sequences_per_commit: int = SEQUENCES_PER_COMMIT,
    allow_loss: bool = False,
    compact_bytes: int = TARGET_BYTES,
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] = _unheard,
) -> ArchiveReport:
    """Archive what the stream holds now, or up to `until`, behind what is archived already.

    `token` also partitions by that token of the subject, from 0. `allow_loss` goes on where the
    stream has dropped messages that were not archived. `compact_bytes` joins files up to that size
    at the end; 0 does not. `progress` is told how many sequences are done, of how many.
    """
    table = open_archive(dest, form, storage_options)
    extent = origin.extent()
    version = _begun(table, extent, token)
    layout = Layout(table.storage, table.data, version.partition_by)
    last = extent.last_seq if until is None else min(until, extent.last_seq)
    position, evicted = _start(version, extent, allow_loss=allow_loss)
    start, added, commits = position, 0, 0
    while position < last:
        end = min(position + sequences_per_commit, last)
        files = _write(origin, layout, position + 1, end)
        version = table.commit(version, files, cursor=end, evicted=evicted)
        position = end
        added += sum(file.rows for file in files)
        commits += 1
        progress(position - start, last - start)
    joined = compact(spark, table, target_bytes=compact_bytes) if compact_bytes else 0
    if isinstance(table, ManifestTable):
        table.vacuum(grace=VACUUM_GRACE_SECONDS)
    return _report(table, dest, added, commits, joined)


def _begun(table: ArchiveTable, extent: Extent, token: int | None) -> Version:
    """The newest version, which must be of this stream; an empty one becomes it."""
    found = table.current()
    wanted = partition_columns(token)
    if not found.stream:
        return msgspec.structs.replace(
            found, stream=extent.stream, created_ns=extent.created_ns, partition_by=wanted
        )
    if found.stream != extent.stream:
        raise ArchiveError(f"the archive is of stream {found.stream}, not {extent.stream}")
    if found.created_ns != extent.created_ns:
        raise ArchiveError(
            f"stream {extent.stream} was made anew since it was archived: its sequences mean other "
            "messages now. Archive it to another place"
        )
    if found.partition_by != wanted:
        raise ArchiveError(
            f"the archive is partitioned by {', '.join(found.partition_by)}, "
            f"not by {', '.join(wanted)}"
        )
    return found


def _start(
    version: Version, extent: Extent, *, allow_loss: bool
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Behind which sequence to go on, and what was dropped before it could be archived."""
    start = max(version.cursor, extent.first_seq - 1)
    if start == version.cursor or version.version == 0:
        return start, version.evicted
    lost = (version.cursor + 1, start)
    if not allow_loss:
        raise ArchiveError(
            f"sequences {lost[0]} to {lost[1]} of stream {extent.stream} are not archived, and the "
            "stream no longer has them: archive more often, keep more, or allow the loss"
        )
    return start, (*version.evicted, lost)


def _write(origin: Origin, layout: Layout, first: int, last: int) -> list[DataFile]:
    rows = origin.rows(first, last).mapInArrow(file_writer(layout), FILE_SCHEMA).collect()
    return [msgspec.json.decode(row.file, type=DataFile) for row in rows]


def _report(table: ArchiveTable, dest: str, added: int, commits: int, joined: int) -> ArchiveReport:
    now = table.current()
    return ArchiveReport(
        stream=now.stream,
        dest=dest,
        form=table.kind,
        rows_added=added,
        commits=commits,
        files_joined=joined,
        version=now.version,
        cursor=now.cursor,
        rows=now.rows,
        files=len(now.files),
        bytes=now.size,
    )
