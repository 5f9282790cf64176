"""The append-log store, for folds that fit in memory: a PGSS file and a map of its live entries.

Invariant: a batch is one write with its data before its cursor, so a torn write leaves data ahead
of the cursor, never a cursor ahead of its data. The file is compacted from memory when more than
half of it, and more than the threshold, is garbage. It is also compacted at open if a record is
redundant or the tail is torn; a file with a torn tail is first kept as `<file>.torn`. Files are
interchangeable with other implementations of the format. The fold's origin, which those do not
store, is in `<file>.meta.json`, which is durable before the first cursor it describes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.fold.errors import FoldFormatError, StoreIOError
from penstock.fold.store import log_codec, pgss
from penstock.fold.store.atomic_files import os_errors, replace
from penstock.fold.store.fold_map import FoldMap
from penstock.fold.store.fold_meta import SnapshotMeta, encode_meta, read_meta
from penstock.fold.store.log_file import LogFile
from penstock.fold.store.memory_store import MapStore, MemorySnapshot
from penstock.fold.store.value_record import decode_record
from penstock.kv.kv_types import KvEntry, KvUpdate, WatchCursor

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Self

COMPACT_THRESHOLD = 10 * 1024 * 1024
"""A file with less garbage than this, in bytes, is not compacted."""
META_SUFFIX = ".meta.json"
TORN_SUFFIX = ".torn"

log = logging.getLogger(__name__)


class LogSnapshot(msgspec.Struct, frozen=True):
    """The state of a fold at one moment, in memory."""

    cursor: WatchCursor
    entries: dict[str, KvEntry]

    def stale_keys(self, current_keys: Iterable[str]) -> list[str]:
        """Return the keys of the fold that are not in `current_keys`."""
        current = set(current_keys)
        return [key for key in self.entries if key not in current]


class AppendLogSnapshot(MapStore):
    """A fold in an append log, with a map of its entries in memory."""

    def __init__(self, file: LogFile, *, compact_threshold: int) -> None:
        super().__init__()
        self._file = file
        self._threshold = compact_threshold
        self._evicting = False
        self._spared_bytes = 0
        """Garbage bytes at the last failed compaction, which alone do not trigger another one."""
        self._recover()

    @classmethod
    def open(
        cls, path: Path | str, *, sync: bool = False, compact_threshold: int = COMPACT_THRESHOLD
    ) -> Self:
        """Open or create a log. `sync` syncs every batch, so that it survives a power cut."""
        file = LogFile.open(Path(path), sync=sync)
        try:
            return cls(file, compact_threshold=compact_threshold)
        except BaseException:
            file.close()
            raise

    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        self._file.check()
        data = pgss.encode_batch(batch, cursor, evicting=self._evicting)
        with self._extended(batch, cursor, meta) as side:
            if meta is not None and meta != self._meta:
                self._write_meta(meta)
            self._file.append(data)
            self._map.fold(batch)
            self._side.change(side)
            self._cursor = cursor
        if self._garbage_bytes() > max(self._threshold, self._map.log_bytes):
            self._try_to_compact()

    def compact(self) -> None:
        """Rewrite the file: each live key once, in order, then the cursor."""
        self._file.replace(
            pgss.compacted(self._map.put_records(), self._cursor, evicting=self._evicting)
        )
        self._spared_bytes = 0

    def clear(self) -> None:
        self._file.replace([pgss.HEADER])
        self._spared_bytes = 0
        self._cursor, self._evicting = WatchCursor.NONE, False
        self._map.clear()
        self._write_meta(SnapshotMeta())
        self._side.clear()
        self._emptied()

    def close(self) -> None:
        super().close()
        self._file.close()

    def _try_to_compact(self) -> None:
        """Compact, ignoring I/O errors: the batch is already in the log, so it must not fail."""
        try:
            self.compact()
        except StoreIOError:
            self._file.check()
            self._spared_bytes += self._garbage_bytes()

    def _garbage_bytes(self) -> int:
        """Return the bytes that a compaction would remove, without spared garbage."""
        return self._file.size - self._map.log_bytes - self._spared_bytes

    def _recover(self) -> None:
        data = self._file.read()
        if len(data) < len(pgss.HEADER) and pgss.HEADER.startswith(data):
            if data or _meta_path(self._file.path).exists():
                log.warning(
                    "fold log %s holds no record: its contents were cut off; the fold starts empty",
                    self._file.path,
                )
            self._file.replace([pgss.HEADER])
            return
        replay = pgss.replay(data, path=str(self._file.path))
        self._map = FoldMap(replay.entries, replay.live_bytes)
        self._cursor, self._evicting = replay.cursor, replay.evicting
        self._meta = _read_meta(self._file.path)
        if replay.evicting and not self._meta.seen_evicting:
            self._meta = msgspec.structs.replace(self._meta, seen_evicting=True)
        if replay.torn_bytes:
            self._report_torn(replay.torn_bytes)
        if not replay.is_compact:
            self.compact()

    def _report_torn(self, torn_bytes: int) -> None:
        log.warning(
            "fold log %s: the last %d bytes are a torn or damaged write and are dropped; the fold "
            "resumes at cursor %d; the old file is kept as %s",
            self._file.path,
            torn_bytes,
            self._cursor.rank,
            self._file.keep_aside(TORN_SUFFIX),
        )

    def _write_meta(self, meta: SnapshotMeta) -> None:
        replace(_meta_path(self._file.path), [encode_meta(meta)])
        self._meta = meta


class SnapshotWriter:
    """Writes a log without a map, for callers that keep the state themselves.

    Updates are buffered until `checkpoint` or `flush`, so a crash loses them together with their
    cursor. The caller keeps the fold invariant: write all updates up to a cursor before its
    checkpoint.
    """

    def __init__(self, file: LogFile, compact_threshold: int) -> None:
        self._file = file
        self._threshold = compact_threshold
        self._compact_bytes = file.size
        self._waiting: list[bytes] = []

    @classmethod
    def open(cls, path: Path | str, *, compact_threshold: int = COMPACT_THRESHOLD) -> Self:
        """Open or create the log; a torn tail is removed first."""
        AppendLogSnapshot.open(path).close()
        return cls(LogFile.open(Path(path), sync=False), compact_threshold)

    def write_update(self, update: KvUpdate) -> None:
        self._file.check()
        self._waiting.append(log_codec.encode_updates((update,)))

    def checkpoint(self, cursor: WatchCursor) -> bool:
        """Append the buffered updates and the cursor; return whether `compact` is due."""
        self._waiting.append(pgss.cursor_record(cursor))
        self.flush()
        grown = self._file.size - self._compact_bytes
        return grown > max(self._threshold, self._compact_bytes)

    def flush(self) -> None:
        """Append the buffered updates without a cursor."""
        data = b"".join(self._waiting)
        self._file.append(data)
        self._waiting.clear()

    def compact(self) -> None:
        self.flush()
        replay = pgss.replay(self._file.read(), path=str(self._file.path))
        self._file.replace(pgss.compacted(FoldMap(replay.entries).put_records(), replay.cursor))
        self._compact_bytes = self._file.size

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path | str) -> LogSnapshot | None:
    """Read a log without changing it; None if it is missing or has neither entries nor cursor."""
    try:
        with os_errors(path):
            data = Path(path).read_bytes()
    except StoreIOError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if len(data) < len(pgss.HEADER) and pgss.HEADER.startswith(data):
        return None
    replay = pgss.replay(data, path=str(path))
    if not replay.entries and not replay.cursor:
        return None
    entries = {key: decode_record(key, record) for key, record in replay.entries.items()}
    return LogSnapshot(replay.cursor, entries)


def read_store(path: Path | str) -> MemorySnapshot:
    """Read the current state of a log into memory; another process may be writing it."""
    path = Path(path)
    with os_errors(path):
        data = path.read_bytes()
    replay = pgss.replay(data, path=str(path))
    return MemorySnapshot.holding(FoldMap(replay.entries), replay.cursor, _read_meta(path))


def load(path: Path | str) -> LogSnapshot | None:
    """Read a log, after compacting it if a record is redundant or the tail is torn."""
    if not Path(path).exists():
        return None
    AppendLogSnapshot.open(path).close()
    return read(path)


def _meta_path(path: Path) -> Path:
    return path.with_name(path.name + META_SUFFIX)


def _read_meta(path: Path) -> SnapshotMeta:
    """Read the metadata file; return empty metadata if it is missing.

    If it is damaged, assume the worst: the fold may have the only copy of values that the bucket
    evicted.
    """
    beside = _meta_path(path)
    try:
        return read_meta(beside.read_bytes() or b"-", beside)
    except FileNotFoundError:
        return SnapshotMeta()
    except (OSError, FoldFormatError) as error:
        log.warning("%s cannot be read: %s; where the fold came from is not known", beside, error)
        return SnapshotMeta(seen_evicting=True)
