"""An archive in Parquet files and a row of manifests: each says all there is, and up to where.

    data/date=2026-11-16/….parquet     written first, under names nobody else has
    _penstock/00000000000000000007.json   the seventh version: its files and the cursor

A version exists when its manifest does, which is made in one step and only if nobody made that
version before. So files and cursor are committed together, two writers cannot both have their way,
and what a killed one leaves is in no manifest. Readers take the highest version.
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
"""Of versions with other columns than messages have, which older readers would not see."""
MANIFESTS: Final = "_penstock"
DATA: Final = "data"
VERSIONS_KEPT: Final = 16
"""Manifests behind the newest that stay, for readers that began earlier."""
DAY_SECONDS: Final = 86_400.0
VACUUM_GRACE_SECONDS: Final = DAY_SECONDS
"""How old a file in no manifest must be before it is taken for left behind: longer than any step of
a writer takes."""
_NAME: Final = re.compile(r"_penstock/(\d{20})\.json")


class ArchiveError(Exception):
    """An archive cannot be used as asked; the text says why and what to do."""


class CommitLost(ArchiveError):
    """Another writer committed first. Nothing was changed; begin again from its version."""


class DataFile(msgspec.Struct, frozen=True, gc=False):
    """One Parquet file, its rows ascending by sequence."""

    path: str
    rows: int
    size: int
    first_seq: int
    last_seq: int
    partition: dict[str, str] = {}
    first_us: int | None = None
    """Its earliest timestamp, in microseconds since 1970; None if that is not recorded."""
    last_us: int | None = None
    first_subject: str = ""
    """Its lowest subject, by bytes; empty if that is not recorded."""
    last_subject: str = ""


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """An archive at one moment. All messages up to `cursor` that the stream had are in `files`."""

    format: int = FORMAT
    version: int = 0
    stream: str = ""
    created_ns: int = 0
    """When the stream was made: another stream of the same name has another."""
    cursor: int = 0
    partition_by: tuple[str, ...] = ()
    evicted: tuple[tuple[int, int], ...] = ()
    """Ranges of sequences that the stream no longer had when they were to be archived."""
    files: tuple[DataFile, ...] = ()
    columns: str = ""
    """The columns of its rows, if not those of messages (`archive_columns`)."""

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
        """The newest version; an empty one if there is no archive."""
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
        """How files are written."""
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
        """The version behind `base`, with these files and without those; `CommitLost` if somebody
        else made it."""
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
            # Ours is so old that its number was free again: others have long gone on from there.
            raise CommitLost(f"version {made} was committed by another writer")

    def vacuum(self, *, grace: float = VACUUM_GRACE_SECONDS) -> int:
        """Delete files that no manifest names and that are older than `grace`; how many."""
        named: set[str] = set()
        for number in self._versions():
            version = msgspec.json.decode(self.storage.read(_manifest(number)), type=Version)
            named |= {file.path for file in version.files}
        oldest = time.time() - grace
        doomed = [
            one.path
            for one in self.storage.listed(DATA)
            if one.path not in named and one.modified < oldest
        ]
        for path in doomed:
            self.storage.delete(path)
        return len(doomed)

    def _versions(self) -> list[int]:
        matches = (_NAME.fullmatch(one.path) for one in self.storage.listed(MANIFESTS))
        return [int(match[1]) for match in matches if match]


def _manifest(version: int) -> str:
    return f"{MANIFESTS}/{version:020d}.json"
