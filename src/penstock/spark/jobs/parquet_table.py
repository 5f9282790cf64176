"""An archive of Parquet files and numbered manifests; each manifest lists all files and the cursor.

    data/date=2026-11-16/….parquet     written first, under unique names
    _penstock/00000000000000000007.json   the seventh version: its files and the cursor

A version exists when its manifest does; the manifest is created atomically, and only if that
version does not exist. So files and cursor are committed together, one of two concurrent writers
fails, and files of a killed writer are in no manifest. Readers use the highest version.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.spark.files.archive_storage import ArchiveStorage
    from penstock.spark.jobs.parquet_writer import FileLayout

FORMAT: Final = 1
TYPED_FORMAT: Final = 2
"""Format of versions with columns other than those of messages, which older readers would
ignore."""
MANIFESTS: Final = "_penstock"
DATA: Final = "data"
VERSIONS_KEPT: Final = 16
"""Number of manifests before the newest that are kept, for readers that began earlier."""
DAY_SECONDS: Final = 86_400.0
VACUUM_GRACE_SECONDS: Final = DAY_SECONDS
"""Age after which a file in no manifest counts as abandoned: longer than any step of a writer
takes."""
_NAME: Final = re.compile(r"_penstock/(\d{20})\.json")


class ArchiveError(Exception):
    """An archive cannot be used as requested; the text gives the reason and the remedy."""


class CommitLost(ArchiveError):
    """Another writer committed first. Nothing was changed; start again from its version."""


class DataFile(msgspec.Struct, frozen=True, gc=False):
    """One Parquet file; its rows ascend by sequence."""

    path: str
    rows: int
    size: int
    first_seq: int
    last_seq: int
    partition: dict[str, str] = {}
    first_us: int | None = None
    """Earliest timestamp in microseconds since 1970; None if not recorded."""
    last_us: int | None = None
    first_subject: str = ""
    """Lowest subject in byte order; empty if not recorded."""
    last_subject: str = ""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """State of an archive. `files` holds all messages up to `cursor` that the stream had."""

    format: int = FORMAT
    version: int = 0
    stream: str = ""
    created_ns: int = 0
    """Creation time of the stream, which distinguishes it from another of the same name."""
    cursor: int = 0
    partition_by: tuple[str, ...] = ()
    evicted: tuple[tuple[int, int], ...] = ()
    """Ranges of sequences that the stream no longer had when they were to be archived."""
    files: tuple[DataFile, ...] = ()
    columns: str = ""
    """Columns of the rows, if not those of messages (`archive_columns`)."""

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


class ManifestTable:
    """An archive whose versions are manifests."""

    kind = "parquet"
    data = DATA

    def __init__(self, storage: ArchiveStorage) -> None:
        self.storage = storage

    def exists(self) -> bool:
        return bool(self._versions())

    def current(self) -> Version:
        """Return the newest version; an empty one if there is no archive."""
        numbers = self._versions()
        if not numbers:
            return Version()
        data = self.storage.read(_manifest(max(numbers)))
        try:
            found = msgspec.json.decode(data, type=Version)
        except msgspec.MsgspecError as error:
            raise ArchiveError(f"manifest {max(numbers)} cannot be read: {error}") from error
        if found.format not in (FORMAT, TYPED_FORMAT):
            raise ArchiveError(f"an archive of format {found.format}, not up to {TYPED_FORMAT}")
        return found

    def layout(self, version: Version, schema: Any) -> FileLayout:
        """Return how files are written."""
        from penstock.spark.jobs.parquet_writer import plain_layout

        return plain_layout(self.storage, self.data, version, schema)

    def joinable(self, version: Version) -> Iterable[DataFile]:
        return version.files

    def expire(self, days: float) -> int:
        return self.vacuum(grace=days * DAY_SECONDS)

    def commit(
        self,
        base: Version,
        added: Iterable[DataFile],
        removed: Iterable[str] = (),
        **changes: object,
    ) -> Version:
        """Create the version after `base` with the added and without the removed files; raises
        `CommitLost` if another writer created it."""
        without = set(removed)
        files = [file for file in base.files if file.path not in without]
        files = sorted([*files, *added], key=lambda file: (file.first_seq, file.path))
        made = msgspec.structs.replace(
            base, version=base.version + 1, files=tuple(files), **changes
        )
        if made.columns:
            made = msgspec.structs.replace(made, format=TYPED_FORMAT)
        if not self.storage.create(_manifest(made.version), msgspec.json.encode(made)):
            raise CommitLost(f"version {made.version} was committed by another writer")
        self._tidy(made.version)
        return made

    def _tidy(self, made: int) -> None:
        versions = self._versions()
        for number in versions:
            if number < max(versions) - VERSIONS_KEPT:
                self.storage.delete(_manifest(number))
        if max(versions) > made:
            # Our base is so old that its successor's number was free again: other writers have
            # moved on.
            raise CommitLost(f"version {made} was committed by another writer")

    def vacuum(self, *, grace: float = VACUUM_GRACE_SECONDS) -> int:
        """Delete files older than `grace` that no manifest references; return their number."""
        named: set[str] = set()
        for number in self._versions():
            version = msgspec.json.decode(self.storage.read(_manifest(number)), type=Version)
            named |= {file.path for file in version.files}
        oldest = time.time() - grace
        unused = [
            one.path
            for one in self.storage.listed(DATA)
            if one.path not in named and one.modified < oldest
        ]
        for path in unused:
            self.storage.delete(path)
        return len(unused)

    def _versions(self) -> list[int]:
        matches = (_NAME.fullmatch(one.path) for one in self.storage.listed(MANIFESTS))
        return [int(match[1]) for match in matches if match]


def _manifest(version: int) -> str:
    return f"{MANIFESTS}/{version:020d}.json"
