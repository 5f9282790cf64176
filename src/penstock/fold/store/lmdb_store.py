"""The LMDB store, for the highest read rate: a memory-mapped B+ tree, one transaction per batch.

Needs the `lmdb` extra. Data pages are synced with each batch; a power cut may lose the last batch,
with `sync=True` none. `fast=True` syncs nothing: a killed process loses nothing, but a power cut
can damage the file. Other processes may read with `LmdbReader.open`.

    data    key -> value record               keys of up to 511 bytes
    long    hash of key -> length, key, value record          all others
    meta    cursor, origin
    side    rows of extensions; created when the first one is attached
"""

from __future__ import annotations

import hashlib
import struct
from contextlib import contextmanager
from heapq import merge
from importlib.util import find_spec
from itertools import dropwhile, islice, takewhile
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from penstock.fold.errors import FoldCorruptedError, FoldFormatError, FoldStoreError, StoreIOError
from penstock.fold.store.atomic_files import os_errors
from penstock.fold.store.contract import (
    PAGE_BYTES_MAX,
    PAGE_ENTRIES,
    ServedByReader,
    SnapshotReader,
)
from penstock.fold.store.fold_meta import (
    SnapshotMeta,
    check_stored,
    encode_cursor,
    encode_meta,
    read_cursor,
    read_meta,
)
from penstock.fold.store.lmdb_map import check_size, open_map
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

    import lmdb

    from penstock.fold.store.extensions import SideRows

FORMAT = 1
TREE_KEY_BYTES_MAX = 511
"""LMDB's own limit."""
READERS_MAX = 512
TABLES_MAX = 4
HASH_BYTES = 32
SIDE_HEAD_BYTES = TREE_KEY_BYTES_MAX - HASH_BYTES
"""Bytes of a long side key that are stored unhashed; rows that share them are not ordered."""
SIDE_LENGTH_BYTES = 4
_CURSOR, _ORIGIN, _FORMAT = b"cursor", b"origin", b"format"
_KEY = itemgetter(0)
_U16 = struct.Struct("<H")
_Item = tuple[bytes, bytes]


class _Tables:
    """The open environment and its tables."""

    def __init__(self, path: Path, env: lmdb.Environment) -> None:
        self.path = path
        self.env = env
        self.data = env.open_db(b"data", create=False)
        self.long = env.open_db(b"long", create=False)
        self.meta = env.open_db(b"meta", create=False)
        self._side: lmdb._Database | None = None
        self.closed = False

    @contextmanager
    def transaction(self, *, write: bool = False) -> Iterator[lmdb.Transaction]:
        if self.closed:
            raise FoldStoreError("the store is closed", path=self.path)
        with lmdb_errors(self.path), self.env.begin(write=write) as txn:
            yield txn

    def side(self) -> lmdb._Database | None:
        """Return the table of extensions; None if it was not created yet."""
        if self._side is None:
            with self.transaction() as txn:
                made = txn.get(b"side") is not None
            self._side = self.env.open_db(b"side", create=False) if made else None
        return self._side

    def make_side(self) -> lmdb._Database:
        if self._side is None:
            with lmdb_errors(self.path):
                self._side = self.env.open_db(b"side")
        return self._side

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.env.close()


class LmdbReader(SnapshotReader):
    """Reads in short transactions, so it never blocks the writer."""

    def __init__(self, tables: _Tables, *, owner: bool = False) -> None:
        self._tables = tables
        self._owner = owner

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Open a fold that another process may be writing, but not one this process has open."""
        return cls(_open(Path(path), readonly=True), owner=True)

    @property
    def cursor(self) -> WatchCursor:
        return read_cursor(self._meta(_CURSOR), self._tables.path)

    @property
    def meta(self) -> SnapshotMeta:
        return read_meta(self._meta(_ORIGIN), self._tables.path)

    def get(self, key: str) -> KvEntry | None:
        with self._tables.transaction() as txn:
            return self._get(txn, key)

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        with self._tables.transaction() as txn:
            return [self._get(txn, key) for key in keys]

    def page(
        self, prefix: str = "", *, after: str | None = None, limit: int = PAGE_ENTRIES
    ) -> list[KvEntry]:
        raw = prefix.encode()
        floor = max(raw, b"" if after is None else after.encode() + b"\0")
        found: list[KvEntry] = []
        size = 0
        with self._tables.transaction() as txn:
            items: Iterator[_Item] = _tree_items(txn, self._tables.data, floor)
            if long := self._long_items(txn, raw, floor):
                items = merge(items, long)
            for key, record in items:
                if not key.startswith(raw) or len(found) == limit or size >= PAGE_BYTES_MAX:
                    break
                size += len(record)
                found.append(decode_record(decode_key(key), record))
        return found

    def count(self, prefix: str = "") -> int:
        tables, raw = self._tables, prefix.encode()
        with tables.transaction() as txn:
            if not raw:
                return int(txn.stat(tables.data)["entries"] + txn.stat(tables.long)["entries"])
            stop = prefix_end(raw)
            with txn.cursor(tables.data) as cursor:
                count = 0
                if cursor.set_range(raw):
                    for key in cursor.iternext(keys=True, values=False):
                        if bytes(key) >= stop:
                            break
                        count += 1
            return count + len(self._long_items(txn, raw, raw))

    def side(self, prefix: bytes, *, after: bytes = b"") -> list[tuple[bytes, bytes]]:
        table = self._tables.side()
        if table is None:
            return []
        floor = max(prefix, after)[:SIDE_HEAD_BYTES]
        with self._tables.transaction() as txn:
            rows = (_side_row(*item) for item in _tree_items(txn, table, floor))
            begun = dropwhile(lambda row: row[0] <= after or row[0] < prefix, rows)
            found = takewhile(lambda row: row[0].startswith(prefix), begun)
            return sorted(islice(found, PAGE_ENTRIES))

    def close(self) -> None:
        if self._owner:
            self._tables.close()

    def _meta(self, name: bytes) -> bytes:
        with self._tables.transaction() as txn:
            return bytes(txn.get(name, b"", db=self._tables.meta))

    def _get(self, txn: lmdb.Transaction, key: str) -> KvEntry | None:
        raw = key.encode()
        if in_tree(raw):
            record = txn.get(raw, db=self._tables.data)
            return None if record is None else decode_record(key, bytes(record))
        item = txn.get(hashed(raw), db=self._tables.long)
        return None if item is None else decode_record(key, _long_item(bytes(item))[1])

    def _long_items(self, txn: lmdb.Transaction, prefix: bytes, floor: bytes) -> list[_Item]:
        """Return the entries with long keys from `floor` on, in order; expected to be few."""
        if not txn.stat(self._tables.long)["entries"]:
            return []
        with txn.cursor(self._tables.long) as cursor:
            items = [_long_item(bytes(value)) for value in cursor.iternext(keys=False)]
        return sorted(item for item in items if item[0].startswith(prefix) and item[0] >= floor)


class LmdbSnapshot(ServedByReader):
    """A fold in an LMDB directory."""

    backend: ClassVar[str] = "lmdb"
    backend_version: ClassVar[str] = str(FORMAT)
    payload: ClassVar[str] = ""
    hydrate_batch: ClassVar[int] = 250_000
    """A large batch in random order shares the pages it changes."""

    def __init__(self, tables: _Tables) -> None:
        self._tables = tables
        self._read = LmdbReader(tables)

    @classmethod
    def open(
        cls,
        path: Path | str,
        *,
        sync: bool = False,
        fast: bool = False,
        map_bytes: int | None = None,
    ) -> Self:
        """Open or create a fold. `map_bytes` is the maximum size of the file, by default
        `MAP_BYTES`, or less if the address space of the process is limited."""
        return cls(_open(Path(path), sync=sync, fast=fast, map_bytes=map_bytes))

    def apply(
        self, batch: Sequence[KvUpdate], cursor: WatchCursor, *, meta: SnapshotMeta | None = None
    ) -> None:
        tables = self._tables
        with (
            self._extended(batch, cursor, meta) as side,
            tables.transaction(write=True) as txn,
        ):
            _change_entries(txn, tables, batch)
            if side and (table := tables.side()) is not None:
                _change_side(txn, table, side)
            if meta is not None:
                txn.put(_ORIGIN, encode_meta(meta), db=tables.meta)
            has_origin = meta is not None or txn.get(_ORIGIN, db=tables.meta) is not None
            txn.put(_CURSOR, encode_cursor(cursor, has_origin=has_origin), db=tables.meta)

    def write_side(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        table = self._tables.make_side()
        with self._tables.transaction(write=True) as txn:
            if cleared:
                _clear_side(txn, table, cleared)
            _change_side(txn, table, rows)

    def clear(self) -> None:
        tables = self._tables
        side = tables.side()
        with tables.transaction(write=True) as txn:
            txn.drop(tables.data, delete=False)
            txn.drop(tables.long, delete=False)
            txn.delete(_CURSOR, db=tables.meta)
            txn.delete(_ORIGIN, db=tables.meta)
            if side is not None:
                txn.drop(side, delete=False)
        self._emptied()

    def reader(self) -> LmdbReader:
        return LmdbReader(self._tables)

    def copy_to(self, target: Path) -> None:
        with os_errors(target):
            target.mkdir()
        with lmdb_errors(target):
            self._tables.env.copy(str(target), compact=True)

    @classmethod
    def open_copy(cls, path: Path) -> LmdbReader:
        return LmdbReader(_open(path, readonly=True, lock=False), owner=True)

    def close(self) -> None:
        self._tables.close()


def in_tree(key: bytes) -> bool:
    """Return whether LMDB can store the key directly; other keys go to the table `long`."""
    return 0 < len(key) <= TREE_KEY_BYTES_MAX


def hashed(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=HASH_BYTES).digest()


@contextmanager
def lmdb_errors(path: Path) -> Iterator[None]:
    """Convert LMDB errors to fold errors."""
    import lmdb

    try:
        yield
    except (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.PanicError) as error:
        raise FoldCorruptedError(str(error), path=path) from error
    except (lmdb.InvalidError, lmdb.VersionMismatchError, lmdb.NotFoundError) as error:
        raise FoldFormatError("not a fold in LMDB", path=path) from error
    except lmdb.MapFullError as error:
        raise StoreIOError("full: open it with more map_bytes", path=path) from error
    except lmdb.Error as error:
        raise StoreIOError(str(error), path=path) from error


def _open(
    path: Path,
    *,
    readonly: bool = False,
    lock: bool = True,
    sync: bool = False,
    fast: bool = False,
    map_bytes: int | None = None,
) -> _Tables:
    if find_spec("lmdb") is None:
        raise FoldStoreError("needs the lmdb package: install penstock[lmdb]")
    if not readonly:
        with os_errors(path):
            path.mkdir(exist_ok=True)
    with lmdb_errors(path):
        env = open_map(
            path,
            map_bytes,
            max_dbs=TABLES_MAX,
            max_readers=READERS_MAX,
            readonly=readonly,
            lock=lock,
            create=not readonly,
            sync=not fast,
            metasync=sync,
        )
        try:
            check_size(path, env)
            if not readonly:
                _make_tables(env)
            tables = _Tables(path, env)
            _check_format(tables)
        except BaseException:
            env.close()
            raise
    return tables


def _make_tables(env: lmdb.Environment) -> None:
    """Create the tables of a new environment in one transaction."""
    with env.begin() as txn:
        if txn.stat()["entries"]:
            return
    with env.begin(write=True) as txn:
        for name in (b"data", b"long"):
            env.open_db(name, txn=txn)
        txn.put(_FORMAT, str(FORMAT).encode(), db=env.open_db(b"meta", txn=txn))


def _check_format(tables: _Tables) -> None:
    with tables.transaction() as txn:
        found = bytes(txn.get(_FORMAT, b"", db=tables.meta))
        if found != str(FORMAT).encode():
            raise FoldFormatError(f"format {found!r} of the fold, not {FORMAT}", path=tables.path)
        cursor, origin = (
            None if (raw := txn.get(name, db=tables.meta)) is None else bytes(raw)
            for name in (_CURSOR, _ORIGIN)
        )
        has_data = any(txn.stat(table)["entries"] for table in (tables.data, tables.long))
        check_stored(cursor, origin, tables.path, has_data=has_data)


def _change_entries(txn: lmdb.Transaction, tables: _Tables, batch: Sequence[KvUpdate]) -> None:
    """Apply the last update of each key, in key order: each page of the tree is visited once."""
    pieces = columns_of(batch)
    columns = None if pieces is None else SortedColumns(pieces)
    if (
        columns is None
        or not 0 < columns.key_bytes_min <= columns.key_bytes_max <= TREE_KEY_BYTES_MAX
    ):
        for key, update in sorted({encode_key(one.key): one for one in batch}.items(), key=_KEY):
            _change(txn, tables, key, update)
        return
    with txn.cursor(tables.data) as cursor:
        cursor.putmulti(columns.records())
    for key in columns.deletes():
        txn.delete(key, db=tables.data)


def _change(txn: lmdb.Transaction, tables: _Tables, key: bytes, update: KvUpdate) -> None:
    if not in_tree(key):
        _change_long(txn, tables, key, update)
    elif update.op is Op.PUT:
        txn.put(key, encode_record(update), db=tables.data)
    else:
        txn.delete(key, db=tables.data)


def _change_long(txn: lmdb.Transaction, tables: _Tables, key: bytes, update: KvUpdate) -> None:
    if update.op is Op.PUT:
        item = _U16.pack(len(key)) + key + encode_record(update)
        txn.put(hashed(key), item, db=tables.long)
    else:
        txn.delete(hashed(key), db=tables.long)


def _long_item(item: bytes) -> _Item:
    size = _U16.unpack_from(item)[0] if len(item) >= _U16.size else 0
    stop = _U16.size + size
    if len(item) <= stop:
        raise FoldFormatError("an entry with a long key that is none")
    return item[_U16.size : stop], item[stop:]


def _change_side(txn: lmdb.Transaction, table: lmdb._Database, rows: SideRows) -> None:
    for row, value in rows.items():
        key, stored = _side_item(row, value or b"")
        if value is None:
            txn.delete(key, db=table)
        else:
            txn.put(key, stored, db=table)


def _side_item(row: bytes, value: bytes) -> _Item:
    """Return the stored form of a row; in a long key, a hash replaces the rest of the key."""
    if len(row) < TREE_KEY_BYTES_MAX:
        return row, value
    head, rest = row[:SIDE_HEAD_BYTES], row[SIDE_HEAD_BYTES:]
    return head + hashed(row), len(rest).to_bytes(SIDE_LENGTH_BYTES, "big") + rest + value


def _side_row(key: bytes, stored: bytes) -> _Item:
    if len(key) < TREE_KEY_BYTES_MAX:
        return key, stored
    stop = SIDE_LENGTH_BYTES + int.from_bytes(stored[:SIDE_LENGTH_BYTES], "big")
    return key[:SIDE_HEAD_BYTES] + stored[SIDE_LENGTH_BYTES:stop], stored[stop:]


def _clear_side(txn: lmdb.Transaction, table: lmdb._Database, prefix: bytes) -> None:
    with txn.cursor(table) as cursor:
        found = cursor.set_range(prefix)
        while found and bytes(cursor.key()).startswith(prefix):
            found = cursor.delete()


def _tree_items(txn: lmdb.Transaction, table: lmdb._Database, floor: bytes) -> Iterator[_Item]:
    with txn.cursor(table) as cursor:
        if cursor.set_range(floor) if floor else cursor.first():
            for key, record in cursor.iternext(keys=True, values=True):
                yield bytes(key), bytes(record)
