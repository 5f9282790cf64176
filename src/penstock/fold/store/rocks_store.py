"""The RocksDB store, for folds larger than memory or with many changes: one write per batch.

Needs the `rocksdb` extra. The write-ahead log is always on: a killed process loses nothing; a power
cut may lose the latest batches, each with its cursor; with `sync=True` it loses none. Column
families, keys and value records are those of other implementations; RocksDB decides whether it can
read their files.

RocksDB rejects all writes after one has failed, even when the disk has space again. So a failed
write poisons the store: it can still be read, but must be closed and reopened for writing.

    data    key -> value record
    meta    cursor, origin, and with the prefix `side\\0` the rows of extensions
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from itertools import islice, takewhile
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, cast

from penstock.fold.errors import StoreIOError, StorePoisoned
from penstock.fold.store.contract import (
    PAGE_BYTES_MAX,
    PAGE_ENTRIES,
    ServedByReader,
    SnapshotReader,
)
from penstock.fold.store.fold_meta import SnapshotMeta, encode_meta, read_cursor, read_meta
from penstock.fold.store.rocks_database import (
    CACHE_BYTES,
    FAMILIES,
    WRITE_BUFFER_BYTES,
    Database,
    connect,
    rocks_errors,
    scan,
    scan_keys,
)
from penstock.fold.store.sorted_columns import SortedColumns
from penstock.fold.store.value_record import (
    decode_key,
    decode_record,
    encode_key,
    encode_record,
    prefix_end,
)
from penstock.kv.kv_types import KvEntry, KvUpdate, Op, WatchCursor
from penstock.kv.update_batch import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Self

    from rocksdict import Rdict, WriteBatch

    from penstock.fold.store.extensions import SideRows

COMPACTION_POLL_SECONDS = 0.01
_CURSOR, _ORIGIN, _SIDE = b"cursor", b"origin", b"side\0"
_DEBTS = ("mem-table-flush-pending", "compaction-pending", "num-running-compactions")


class RocksDbReader(SnapshotReader):
    """A handle on the same database; RocksDB allows reads while the store is written."""

    def __init__(self, database: Database, *, owner: bool = False) -> None:
        self._path = database.path
        self._database = database
        self._owner = owner

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a reader of the current state; another process may be writing the fold."""
        path = Path(path)
        db = connect(path, CACHE_BYTES, WRITE_BUFFER_BYTES, readonly=True)
        return cls(Database(path, db), owner=True)

    @property
    def _data(self) -> Rdict:
        return self._database.families[0]

    @property
    def _meta_family(self) -> Rdict:
        return self._database.families[1]

    @property
    def cursor(self) -> WatchCursor:
        return read_cursor(self._meta(_CURSOR), self._path)

    @property
    def meta(self) -> SnapshotMeta:
        return read_meta(self._meta(_ORIGIN), self._path)

    def get(self, key: str) -> KvEntry | None:
        with rocks_errors(self._path):
            record: bytes | None = self._data.get(key.encode())
        return None if record is None else decode_record(key, record)

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        with rocks_errors(self._path):
            records = cast("list[bytes | None]", self._data[[key.encode() for key in keys]])
        return [
            None if record is None else decode_record(key, record)
            for key, record in zip(keys, records, strict=True)
        ]

    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        raw = prefix.encode()
        floor = max(raw, b"" if after is None else after.encode() + b"\0")
        found: list[KvEntry] = []
        size = 0
        with rocks_errors(self._path):
            for key, record in scan(self._data, floor):
                if not key.startswith(raw) or len(found) == limit or size >= PAGE_BYTES_MAX:
                    break
                found.append(decode_record(decode_key(key), record))
                size += len(record)
        return found

    def count(self, prefix: str = "") -> int:
        raw = prefix.encode()
        with rocks_errors(self._path):
            keys = scan_keys(self._data, raw)
            return sum(1 for _ in takewhile(methodcaller("startswith", raw), keys))

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        wanted = _SIDE + prefix
        with rocks_errors(self._path):
            rows = scan(self._meta_family, max(wanted, _SIDE + after + b"\0"))
            found = takewhile(lambda row: row[0].startswith(wanted), rows)
            page = list(islice(found, PAGE_ENTRIES))
        return [(key[len(_SIDE) :], value) for key, value in page]

    def close(self) -> None:
        """Close the database if this reader opened it."""
        if self._owner:
            self._database.close()

    def _meta(self, name: bytes) -> bytes:
        with rocks_errors(self._path):
            raw: bytes | None = self._meta_family.get(name)
        return raw or b""


class RocksDbSnapshot(ServedByReader):
    """A fold in a RocksDB directory."""

    backend: ClassVar[str] = "rocksdb"
    backend_version: ClassVar[str] = "rocksdict-0.3"
    backend_version_gated: ClassVar[bool] = False
    payload: ClassVar[str] = ""
    hydrate_batch: ClassVar[int] = 100_000
    """Sorted keys are cheaper to insert, and large batches leave fewer files to merge."""

    def __init__(self, path: Path, db: Rdict, *, sync: bool) -> None:
        from rocksdict import WriteOptions

        self._path = path
        self._database = Database(path, db)
        self._read = RocksDbReader(self._database)
        self._write_options = WriteOptions()
        self._write_options.sync = sync
        self._poison = ""

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        sync: bool = False,
        cache_bytes: int = CACHE_BYTES,
        write_buffer_bytes: int = WRITE_BUFFER_BYTES,
    ) -> Self:
        path = Path(path)
        return cls(path, connect(path, cache_bytes, write_buffer_bytes), sync=sync)

    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        writes = _changes(self._database, batch, cursor, meta)
        with self._extended(batch, cursor, meta) as side:
            _add_side(writes, side, self._database)
            self._write(writes)

    def write_side(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        self._write(_side_changes(self._database, rows, cleared))

    def clear(self) -> None:
        self._write(_removals(self._database))
        self._emptied()

    def finish_load(self) -> None:
        """Rebuild extensions, flush, and wait until no compaction is pending."""
        super().finish_load()
        with self._writing():
            self._on_each(methodcaller("flush", True))
            while any(self._debt(name) for name in _DEBTS):
                time.sleep(COMPACTION_POLL_SECONDS)

    def compact(self) -> None:
        self.finish_load()
        with self._writing():
            self._on_each(methodcaller("compact_range", None, None))

    def reader(self) -> RocksDbReader:
        return RocksDbReader(self._database)

    def copy_to(self, target: Path) -> None:
        from rocksdict import Checkpoint

        with rocks_errors(target):
            Checkpoint(self._database.db).create_checkpoint(str(target))

    def close(self) -> None:
        self._database.close(is_writer=True)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Wrap a write; after a failed one, reject all later writes as RocksDB does."""
        if self._poison:
            raise StorePoisoned(self._poison, path=self._path)
        try:
            with rocks_errors(self._path):
                yield
        except StoreIOError as error:
            self._poison = f"an earlier write failed: {error.__cause__}"
            raise

    def _write(self, writes: WriteBatch) -> None:
        with self._writing():
            self._database.db.write(writes, self._write_options)

    def _on_each(self, work: methodcaller) -> None:
        for at in range(len(FAMILIES)):
            work(self._database.families[at])

    def _debt(self, name: str) -> int:
        families = self._database.families
        return sum(family.property_int_value(f"rocksdb.{name}") or 0 for family in families)


# Write batches are built in these functions, not in the methods that write them: a stored exception
# keeps the local variables of its frames alive, and a handle among them keeps the database locked.


def _changes(
    database: Database, batch: Sequence[KvUpdate], cursor: WatchCursor, meta: SnapshotMeta | None
) -> WriteBatch:
    from rocksdict import WriteBatch

    data, rest = database.handles
    writes = WriteBatch(raw_mode=True)
    put, delete = writes.put, writes.delete
    pieces = columns_of(batch)
    if pieces is not None:
        columns = SortedColumns(pieces)  # sorted keys are cheaper to insert
        for key, record in columns.records():
            put(key, record, data)
        for key in columns.deletes():
            delete(key, data)
    else:
        for update in {update.key: update for update in batch}.values():
            if update.op is Op.PUT:
                put(encode_key(update.key), encode_record(update), data)
            else:
                delete(encode_key(update.key), data)
    if meta is not None:
        writes.put(_ORIGIN, encode_meta(meta), rest)
    writes.put(_CURSOR, cursor.raw, rest)
    return writes


def _side_changes(database: Database, rows: SideRows, cleared: bytes) -> WriteBatch:
    from rocksdict import WriteBatch

    writes = WriteBatch(raw_mode=True)
    if cleared:
        _, rest = database.handles
        writes.delete_range(_SIDE + cleared, _SIDE + prefix_end(cleared), rest)
    _add_side(writes, rows, database)
    return writes


def _removals(database: Database) -> WriteBatch:
    from rocksdict import WriteBatch

    data, rest = database.handles
    writes = WriteBatch(raw_mode=True)
    writes.delete_range(b"", b"\xff", data)  # UTF-8 keys never reach 0xFF
    writes.delete(_CURSOR, rest)
    writes.delete(_ORIGIN, rest)
    writes.delete_range(_SIDE, prefix_end(_SIDE), rest)
    return writes


def _add_side(writes: WriteBatch, rows: SideRows, database: Database) -> None:
    _, family = database.handles
    for key, value in rows.items():
        if value is None:
            writes.delete(_SIDE + key, family)
        else:
            writes.put(_SIDE + key, value, family)
