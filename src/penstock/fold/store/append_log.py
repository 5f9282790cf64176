"""The fold that fits in memory: a PGSS file that is appended to, and a map of its live entries.

A batch is one write, its data before its cursor: a torn write leaves data ahead of the cursor,
never a cursor ahead of its data. The file is compacted from memory once more than half of it, and
more than the threshold, is garbage; and at opening, if a record in it is redundant or its tail is
torn. A file with a torn tail is kept aside as `<file>.torn` before that. Files are interchangeable
with other implementations of the format; where the fold came from, which those do not know, is in
`<file>.meta.json`, which is durable before the first cursor it describes.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from penstock.fold.errors import FoldFormatError, StoreIOError
from penstock.fold.store import log_codec, pgss
from penstock.fold.store.atomic_files import replace, told_as_store_error
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
"""A file with less garbage than this is not written anew."""
META_SUFFIX = ".meta.json"
TORN_SUFFIX = ".torn"

log = logging.getLogger(__name__)


class LogSnapshot(msgspec.Struct, frozen=True):
    """A fold at one moment, wholly in memory."""

    cursor: WatchCursor
    entries: dict[str, KvEntry]

    def stale_keys(self, current_keys: Iterable[str]) -> list[str]:
        """The keys that are here and not among the current ones."""
        current = set(current_keys)
        return [key for key in self.entries if key not in current]


class AppendLogSnapshot(MapStore):
    """An append log and the map it describes."""

    def __init__(self, file: LogFile, *, compact_threshold: int) -> None:
        super().__init__()
        self._file = file
        self._threshold = compact_threshold
        self._evicting = False
        self._spared_bytes = 0
        """Garbage that a failed compaction left, and that is not tried again for."""
        self._recover()

    @classmethod
    def open(
        cls, path: Path | str, *, sync: bool = False, compact_threshold: int = COMPACT_THRESHOLD
    ) -> Self:
        """`sync` makes every batch durable over a power cut, at the price of a sync each."""
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
        """Write the file anew: each live key once, in order, then the cursor."""
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
        """The batch is in the log already: that it stays long is no reason to refuse it."""
        try:
            self.compact()
        except StoreIOError:
            self._file.check()
            self._spared_bytes += self._garbage_bytes()

    def _garbage_bytes(self) -> int:
        """How much of the file would go if it was written anew."""
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
        said = pgss.replay(data, path=str(self._file.path))
        self._map = FoldMap(said.entries, said.live_bytes)
        self._cursor, self._evicting = said.cursor, said.evicting
        self._meta = _read_meta(self._file.path)
        if said.evicting and not self._meta.seen_evicting:
            self._meta = msgspec.structs.replace(self._meta, seen_evicting=True)
        if said.torn_bytes:
            self._report_torn(said.torn_bytes)
        if not said.settled:
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
    """The log alone, for those who keep the state themselves: updates, then a checkpoint.

    Updates wait in memory for their checkpoint, so a crash loses them together with it. The law of
    the fold is the caller's here: a cursor is checkpointed after its updates were written.
    """

    def __init__(self, file: LogFile, compact_threshold: int) -> None:
        self._file = file
        self._threshold = compact_threshold
        self._settled_bytes = file.size
        self._waiting: list[bytes] = []

    @classmethod
    def open(cls, path: Path | str, *, compact_threshold: int = COMPACT_THRESHOLD) -> Self:
        """Open or make the log; a torn tail is cut off first."""
        AppendLogSnapshot.open(path).close()
        return cls(LogFile.open(Path(path), sync=False), compact_threshold)

    def write_update(self, update: KvUpdate) -> None:
        self._file.check()
        self._waiting.append(log_codec.encode_updates((update,)))

    def checkpoint(self, cursor: WatchCursor) -> bool:
        """Append what waits and the cursor; true if it is time to `compact`."""
        self._waiting.append(pgss.cursor_record(cursor))
        self.flush()
        grown = self._file.size - self._settled_bytes
        return grown > max(self._threshold, self._settled_bytes)

    def flush(self) -> None:
        """Append what waits, without a cursor."""
        data = b"".join(self._waiting)
        self._file.append(data)
        self._waiting.clear()

    def compact(self) -> None:
        self.flush()
        said = pgss.replay(self._file.read(), path=str(self._file.path))
        self._file.replace(pgss.compacted(FoldMap(said.entries).put_records(), said.cursor))
        self._settled_bytes = self._file.size

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def read(path: Path | str) -> LogSnapshot | None:
    """What a log says, without changing it; None if there is none or it says nothing."""
    try:
        with told_as_store_error(path):
            data = Path(path).read_bytes()
    except StoreIOError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return None
        raise
    if len(data) < len(pgss.HEADER) and pgss.HEADER.startswith(data):
        return None
    said = pgss.replay(data, path=str(path))
    if not said.entries and not said.cursor:
        return None
    entries = {key: decode_record(key, record) for key, record in said.entries.items()}
    return LogSnapshot(said.cursor, entries)


def read_store(path: Path | str) -> MemorySnapshot:
    """What a log says now, to be read in memory, beside whoever writes it."""
    path = Path(path)
    with told_as_store_error(path):
        data = path.read_bytes()
    said = pgss.replay(data, path=str(path))
    return MemorySnapshot.holding(FoldMap(said.entries), said.cursor, _read_meta(path))


def load(path: Path | str) -> LogSnapshot | None:
    """What a log says, after writing it anew where anything in it was redundant or torn."""
    if not Path(path).exists():
        return None
    AppendLogSnapshot.open(path).close()
    return read(path)


def _meta_path(path: Path) -> Path:
    return path.with_name(path.name + META_SUFFIX)


def _read_meta(path: Path) -> SnapshotMeta:
    """What the sidecar says; nothing if there is none.

    Of one that is damaged the worst is assumed: values that the bucket dropped may be here alone.
    """
    beside = _meta_path(path)
    try:
        return read_meta(beside.read_bytes() or b"-", beside)
    except FileNotFoundError:
        return SnapshotMeta()
    except (OSError, FoldFormatError) as error:
        log.warning("%s cannot be read: %s; where the fold came from is not known", beside, error)
        return SnapshotMeta(seen_evicting=True)
