"""The compared stores: Penstock, SQLite, LMDB and RocksDB, with one narrow interface.

An engine takes batches of messages (sequence, subject, payload) and makes each batch durable, or
only passes it to the operating system, as selected on open. Ours also maintains its subject index;
the others store only a row by sequence, which favours them.
"""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING, Any, Protocol

from penstock.store.filestore import FileStore
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

LMDB_BYTES = 1 << 33
SEQUENCE_BYTES = 8
Batch = list[tuple[int, str, bytes]]


class Engine(Protocol):
    """A store under test. `settings` describes how it was opened."""

    settings: str

    def append(self, batch: Batch) -> None:
        """Store a batch; on return it is as durable as requested."""

    def close(self) -> None: ...

    def count(self) -> int:
        """Return the number of messages, from a store that was opened again."""


class PenstockByCall:
    """Our file store, one Python call per message, as for messages that need decisions."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        self.settings = "sync before ack" if durable else "lazy: written every batch"
        self._durable = durable
        self._disk = RealDisk.at(place, create=True)
        self._store = FileStore.open(
            self._disk, incarnation=1, noise=os.urandom, sync_always=durable
        )

    def append(self, batch: Batch) -> None:
        self._put(batch)
        work = self._store.pending_sync(write_only=not self._durable)
        if work is not None:
            work.run()
            self._store.synced(work)
        if not self._durable and self._store.sync_wanted:
            self._sync()

    def _put(self, batch: Batch) -> None:
        append = self._store.append
        for seq, subject, payload in batch:
            append(subject, b"", payload, seq)

    def _sync(self) -> None:
        """Sync: a lazy store syncs when its reserved sequences run short."""
        work = self._store.pending_sync()
        assert work is not None
        work.run()
        self._store.synced(work)

    def close(self) -> None:
        self._store.close()
        self._disk.close()

    def count(self) -> int:
        return self._store.state().msgs


class Penstock(PenstockByCall):
    """Our file store, one call per batch, as the server's compiled lane appends plain messages."""

    def _put(self, batch: Batch) -> None:
        log = self._store.lane_parts()["log"]
        log.append_batch([(subject.encode(), b"", data) for _, subject, data in batch], batch[0][0])


class Sqlite:
    """A table by sequence, write-ahead log."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        level = "FULL" if durable else "NORMAL"
        self.settings = f"WAL, synchronous={level}"
        place.mkdir(exist_ok=True)
        self._db = sqlite3.connect(place / "db", isolation_level=None)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute(f"PRAGMA synchronous={level}")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS m (seq INTEGER PRIMARY KEY, subject TEXT, payload BLOB)"
        )

    def append(self, batch: Batch) -> None:
        self._db.execute("BEGIN")
        self._db.executemany("INSERT INTO m VALUES (?, ?, ?)", batch)
        self._db.execute("COMMIT")

    def close(self) -> None:
        self._db.close()

    def count(self) -> int:
        return int(self._db.execute("SELECT count(*) FROM m").fetchone()[0])


class Lmdb:
    """A tree by sequence."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        import lmdb

        self.settings = "sync" if durable else "no sync, writemap"
        place.mkdir(exist_ok=True)
        self._db = lmdb.open(
            str(place), map_size=LMDB_BYTES, sync=durable, metasync=durable, writemap=not durable
        )

    def append(self, batch: Batch) -> None:
        with self._db.begin(write=True) as change:
            for seq, subject, payload in batch:
                change.put(_key(seq), subject.encode() + b"\0" + payload, append=True)

    def close(self) -> None:
        self._db.close()

    def count(self) -> int:
        return int(self._db.stat()["entries"])


class Rocks:
    """A log-structured tree by sequence."""

    def __init__(self, place: Path, *, durable: bool) -> None:
        import rocksdict

        self.settings = "WAL, sync" if durable else "WAL, no sync"
        self._batch = rocksdict.WriteBatch
        self._how = rocksdict.WriteOptions()
        self._how.sync = durable
        self._db: Any = rocksdict.Rdict(str(place), rocksdict.Options(raw_mode=True))

    def append(self, batch: Batch) -> None:
        change = self._batch(raw_mode=True)
        for seq, subject, payload in batch:
            change.put(_key(seq), subject.encode() + b"\0" + payload)
        self._db.write(change, self._how)

    def close(self) -> None:
        self._db.close()

    def count(self) -> int:
        return len(list(self._db.keys()))


def _key(seq: int) -> bytes:
    return seq.to_bytes(SEQUENCE_BYTES, "big")


ENGINES: dict[str, Callable[..., Engine]] = {
    "penstock": Penstock,
    "penstock, by call": PenstockByCall,
    "sqlite": Sqlite,
    "lmdb": Lmdb,
    "rocksdb": Rocks,
}
