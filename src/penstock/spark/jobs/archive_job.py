"""Archive job: copies a stream to an archive, every message once, across any number of restarts.

The archive's own cursor records where to continue; a step reads a range after it, writes its files
and commits files and cursor together. A job that dies in between leaves files that no version
references. A recreated stream of the same name raises an error; so do messages that the stream
dropped before they were archived, unless the caller allows the loss.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, Protocol

import msgspec

from penstock.spark.files.archive_storage import storage_for
from penstock.spark.files.storage_options import flat
from penstock.spark.jobs.archive_columns import check_columns, columns_of
from penstock.spark.jobs.archive_compaction import TARGET_BYTES, compact
from penstock.spark.jobs.archive_removals import Ranges, removed_between
from penstock.spark.jobs.delta_table import DeltaArchive
from penstock.spark.jobs.iceberg_io import SCHEME as ICEBERG_SCHEME
from penstock.spark.jobs.job_inputs import without_losses
from penstock.spark.jobs.parquet_table import (
    VACUUM_GRACE_SECONDS,
    ArchiveError,
    DataFile,
    ManifestTable,
    Version,
)
from penstock.spark.jobs.parquet_writer import (
    DAY,
    FILE_SCHEMA,
    TIMES,
    TOKEN_PREFIX,
    TOKEN_VALUES_MAX,
    FileLayout,
    check_tokens,
    file_writer,
    partition_columns,
)
from penstock.spark.message_rows import arrow_schema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pyspark.sql import DataFrame, SparkSession

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.job_inputs import InputExtent, Origin

SEQUENCES_PER_COMMIT: Final = 2_000_000
DAY_SECONDS: Final = 86_400.0
ICEBERG: Final = "iceberg"
FORMS: Final = ("parquet", "delta", ICEBERG)

log = logging.getLogger(__name__)


class ArchiveTable(Protocol):
    """Interface of an archive."""

    kind: str

    @property
    def data(self) -> str:
        """Directory of its files."""
        ...

    @property
    def storage(self) -> ArchiveStorage: ...

    def current(self) -> Version: ...

    def layout(self, version: Version, schema: Any) -> FileLayout:
        """Return how files with rows of this Arrow schema are written; None for all existing
        columns."""
        ...

    def commit(
        self, base: Version, added: Iterable[DataFile], removed: Iterable[str] = (), **changes: Any
    ) -> Version: ...

    def joinable(self, version: Version) -> Iterable[DataFile]:
        """Return files of the newest version that may be joined with others."""
        ...

    def expire(self, days: float) -> int:
        """Remove versions older than `days`, and the files that only they reference; return the
        number of files."""
        ...


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
    removed: int = 0
    """Number of sequences of this run that the stream removed before the read
    (`archive_removals`)."""


def open_archive(
    dest: str, form: str = "", storage_options: dict[str, Any] | None = None
) -> ArchiveTable:
    """Return the archive at a location, of whatever form; `form` selects the form of a new one."""
    if form not in ("", *FORMS):
        raise ArchiveError(f"form {form!r}: an archive is one of {', '.join(FORMS)}")
    if dest.startswith(ICEBERG_SCHEME) or form == ICEBERG:
        return _iceberg(dest, form, storage_options or {})
    storage = storage_for(dest, storage_options)
    delta = DeltaArchive(storage, flat(storage_options or {}))
    plain = ManifestTable(storage)
    there = "delta" if delta.exists() else "parquet" if plain.exists() else ""
    if there and form and form != there:
        raise ArchiveError(f"{dest} holds an archive of form {there}, not {form}")
    return delta if (there or form) == "delta" else plain


def _iceberg(dest: str, form: str, options: dict[str, Any]) -> ArchiveTable:
    from penstock.spark.jobs.iceberg_table import IcebergArchive

    if form not in ("", ICEBERG):
        raise ArchiveError(f"{dest} names an Iceberg table, and the form is {form}")
    return IcebergArchive(dest, options)


def archive(
    spark: SparkSession,
    origin: Origin,
    dest: str,
    *,
    form: str = "",
    token: int | None = None,
    by_time: str = DAY,
    token_values_max: int = TOKEN_VALUES_MAX,
    until: int | None = None,
    sequences_per_commit: int = SEQUENCES_PER_COMMIT,
    allow_loss: bool = False,
    compact_bytes: int = TARGET_BYTES,
    expire_days: float | None = None,
    storage_options: dict[str, Any] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> ArchiveReport:
    """Archive what the stream holds now, or up to `until`, after what is already archived.

    `token` also partitions by that token of the subject, from 0, which may have `token_values_max`
    values; `by_time` is the step of an Iceberg table's partitions (`TIMES`). `allow_loss` continues
    if the stream dropped messages before they were archived, or is truncated during the run. The
    report counts what the stream's limits remove during the run. `compact_bytes` joins files up to
    that size at the end; 0 disables it. `expire_days` removes versions older than that and the
    files that only they reference. `progress` gets the number of sequences done, and the total.
    """
    table = open_archive(dest, form, storage_options)
    extent = origin.extent()
    version = _begun(table, extent, _wanted(table.kind, token, by_time))
    last = extent.last_seq if until is None else min(until, extent.last_seq)
    position, evicted = _start(version, extent, allow_loss=allow_loss)
    source = without_losses(origin) if allow_loss else origin
    steps = _Steps(table, source, version, evicted, token_values_max)
    start = position
    while position < last:
        end = min(position + sequences_per_commit, last)
        steps.take(position + 1, end)
        position = end
        if progress is not None:
            progress(position - start, last - start)
    joined = compact(spark, table, target_bytes=compact_bytes) if compact_bytes else 0
    _tidy(table, expire_days)
    return _report(table, dest, steps, joined)


@dataclass(slots=True)
class _Steps:
    """The commits of a run."""

    table: ArchiveTable
    origin: Origin
    version: Version
    evicted: Ranges
    token_values_max: int
    added: int = 0
    commits: int = 0
    removed: int = 0

    def take(self, first: int, last: int) -> None:
        """Archive a range of sequences and move the cursor to its end."""
        rows = self.origin.rows(first, last)
        if self.version.version and self.table.kind != ICEBERG:
            check_columns(self.version, rows.schema)
        layout = replace(
            self.table.layout(self.version, arrow_schema(rows.schema)),
            token_values_max=self.token_values_max,
        )
        files = _write(rows, layout)
        check_tokens(layout, (*self.version.files, *files))
        now = self.origin.extent()
        _check_identity(self.version, now)
        count, ranges = removed_between(layout.storage, files, first, last, now)
        if count:
            log.warning(
                "stream %s removed %d of the sequences %d-%d before they were archived",
                now.stream,
                count,
                first,
                last,
            )
        self.evicted = (*self.evicted, *ranges)
        self.version = self.table.commit(
            self.version,
            files,
            cursor=last,
            evicted=self.evicted,
            columns=columns_of(rows.schema),
        )
        self.removed += count
        self.added += sum(file.rows for file in files)
        self.commits += 1


def _tidy(table: ArchiveTable, days: float | None) -> None:
    if isinstance(table, ManifestTable):
        table.vacuum(grace=VACUUM_GRACE_SECONDS if days is None else days * DAY_SECONDS)
    elif days is not None and table.current().stream:
        table.expire(days)


def _wanted(kind: str, token: int | None, by_time: str) -> tuple[str, ...]:
    """Return what an archive is to be partitioned by."""
    if by_time not in TIMES:
        raise ArchiveError(f"partitions by time {by_time!r}: give one of {', '.join(TIMES)}")
    if kind != ICEBERG:
        if by_time != DAY:
            raise ArchiveError(f"an archive of form {kind} is partitioned by day")
        return partition_columns(token)
    times = () if by_time == "none" else (f"timestamp_{by_time}",)
    return times if token is None else (*times, f"{TOKEN_PREFIX}{token}")


def _begun(table: ArchiveTable, extent: InputExtent, wanted: tuple[str, ...]) -> Version:
    """Return the newest version, which must be of this stream; an empty one is assigned to it."""
    found = table.current()
    if not found.stream:
        return msgspec.structs.replace(
            found, stream=extent.stream, created_ns=extent.created_ns, partition_by=wanted
        )
    if found.stream != extent.stream:
        raise ArchiveError(f"the archive is of stream {found.stream}, not {extent.stream}")
    _check_identity(found, extent)
    if found.partition_by != wanted:
        raise ArchiveError(
            f"the archive is partitioned by {', '.join(found.partition_by) or 'nothing'}, "
            f"not by {', '.join(wanted) or 'nothing'}"
        )
    return found


def _check_identity(version: Version, extent: InputExtent) -> None:
    if version.created_ns != extent.created_ns:
        raise ArchiveError(
            f"stream {extent.stream} was recreated since it was archived: its sequences mean other "
            "messages now. Archive it to another place"
        )


def _start(
    version: Version, extent: InputExtent, *, allow_loss: bool
) -> tuple[int, tuple[tuple[int, int], ...]]:
    """Return the sequence to continue after, and what was dropped before it could be archived."""
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


def _write(rows: DataFrame, layout: FileLayout) -> list[DataFile]:
    made = rows.mapInArrow(file_writer(layout), FILE_SCHEMA).collect()
    return [msgspec.json.decode(row.file, type=DataFile) for row in made]


def _report(table: ArchiveTable, dest: str, steps: _Steps, joined: int) -> ArchiveReport:
    now = table.current()
    return ArchiveReport(
        stream=now.stream,
        dest=dest,
        form=table.kind,
        rows_added=steps.added,
        commits=steps.commits,
        files_joined=joined,
        version=now.version,
        cursor=now.cursor,
        rows=now.rows,
        files=len(now.files),
        bytes=now.size,
        removed=steps.removed,
    )
