"""Opens RocksDB databases and reads them in order, with checks that RocksDB leaves to its callers.

- An iterator that meets a damaged block just ends, so `scan` asks for its status at the end.
- RocksDB drops everything after a damaged record of its write-ahead log. `connect` refuses
  such a log first, then opens the last state before the damage, and keeps the files in
  `<path>.torn`.
- RocksDB takes a shortened manifest for a torn write, and deletes the files it no longer names. An
  orderly close records its last sequence number in the file `PENSTOCK`; if the opened database is
  behind it, `connect` keeps the files, too.

Both column families are flushed together, so every older state is consistent.
"""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast
from zlib import crc32

from penstock.fold.errors import (
    FoldCorruptedError,
    FoldFormatError,
    FoldStoreError,
    StoreIOError,
)
from penstock.fold.store.atomic_files import os_errors, replace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from rocksdict import ColumnFamily, DBRecoveryMode, Options, Rdict, ReadOptions

KIB, MIB, GIB = 1024, 1024**2, 1024**3
CACHE_BYTES = 256 * MIB
WRITE_BUFFER_BYTES = 64 * MIB
WRITE_BUFFERS_MAX = 2
META_BUFFER_BYTES = 8 * MIB
WAL_BYTES_MAX = 1 * GIB
"""Limit of the write-ahead log. Each batch also writes to the small family `meta`, whose unflushed
data would otherwise keep every log file."""
BLOCK_BYTES = 16 * KIB
METADATA_BLOCK_BYTES = 4 * KIB
FILTER_BITS_PER_KEY = 10
SYNC_BYTES = 1 * MIB
JOBS_MAX = 16
FAMILIES = ("data", "meta")
TORN_SUFFIX = ".torn"
MANIFEST_BLOCK_BYTES = 32 * KIB
MANIFEST_HEAD_BYTES = 7
RECYCLED_TYPES = range(5, 9)
_STAGE_SUFFIX = ".opening"
_MARK = "PENSTOCK"
_KEPT = ("*.sst", "*.log", "MANIFEST-*", "CURRENT")

log = logging.getLogger(__name__)


class Database:
    """Holds every object that keeps the database open and its directory locked."""

    def __init__(self, path: Path, db: Rdict) -> None:
        self.path = path
        self._db: Rdict | None = db
        self._families = [db.get_column_family(name) for name in FAMILIES]
        self._handles = [db.get_column_family_handle(name) for name in FAMILIES]

    @property
    def db(self) -> Rdict:
        if self._db is None:
            raise FoldStoreError("the store is closed", path=self.path)
        return self._db

    @property
    def families(self) -> list[Rdict]:
        """The column families `data` and `meta`."""
        _ = self.db
        return self._families

    @property
    def handles(self) -> list[ColumnFamily]:
        """The handles of `data` and `meta` for a write batch."""
        _ = self.db
        return self._handles

    def close(self, *, is_writer: bool = False) -> None:
        """Flush and close. If the flush fails, the lock is still released, because the write-ahead
        log contains all data."""
        if self._db is None:
            return
        db, families = self._db, self._families
        self._db, self._families, self._handles = None, [], []
        last = 0
        with suppress(Exception):
            last = db.latest_sequence_number() if is_writer else 0
        for one in (*families, db):
            try:
                one.close()
            except Exception as error:
                log.warning("fold %s: not flushed when it was closed: %s", self.path, error)
                last = 0
        if last:
            _mark(self.path, last)


def _mark(path: Path, last: int) -> None:
    """Record the last sequence number of an orderly close; a mark that is missing or older only
    protects less."""
    text = b"%d" % last
    with suppress(StoreIOError):
        replace(path / _MARK, [b"%s %08x\n" % (text, crc32(text))])


def _marked(path: Path) -> int:
    """Return the recorded sequence number; 0 if there is none, or it is damaged."""
    try:
        text, checksum = (path / _MARK).read_bytes().split()
        return int(text) if int(checksum, 16) == crc32(text) else 0
    except (OSError, ValueError):
        return 0


def connect(
    path: Path, cache_bytes: int, write_buffer_bytes: int, *, readonly: bool = False
) -> Rdict:
    """Open or create a database. If it opens at an older state than it had, keep its files."""
    try:
        from rocksdict import AccessType, DBRecoveryMode, Rdict
    except ImportError as error:
        raise FoldStoreError("needs the rocksdict package: install penstock[rocksdb]") from error

    def opened(access: AccessType, mode: DBRecoveryMode) -> Rdict:
        with rocks_errors(path):
            families = _families(cache_bytes, write_buffer_bytes)
            return Rdict(str(path), _database_options(mode), families, access)

    _check_manifest(path)
    strict = DBRecoveryMode.tolerate_corrupted_tail_records()
    if readonly:
        return opened(AccessType.read_only(), strict)
    with os_errors(path):
        path.mkdir(exist_ok=True)
        stage = _staged(path)
    is_older = False
    try:
        try:
            db = opened(AccessType.read_write(), strict)
        except FoldCorruptedError:
            if not any(one.stat().st_size for one in path.glob("*.log")):
                raise
            db = opened(AccessType.read_write(), DBRecoveryMode.point_in_time())
            is_older = True
        if is_older or db.latest_sequence_number() < _marked(path):
            _keep(path, stage)
        return db
    finally:
        shutil.rmtree(stage, ignore_errors=True)


def _check_manifest(path: Path) -> None:
    """Raise for a record type that RocksDB writes only to recycled logs: in a manifest it makes
    RocksDB read without end."""
    at, data = 0, b""
    with os_errors(path), suppress(FileNotFoundError, NotADirectoryError):
        name = (path / "CURRENT").read_bytes().strip().decode(errors="replace")
        data = (path / name).read_bytes() if name.startswith("MANIFEST-") else b""
    while at + MANIFEST_HEAD_BYTES <= len(data):
        left = MANIFEST_BLOCK_BYTES - at % MANIFEST_BLOCK_BYTES
        if left < MANIFEST_HEAD_BYTES:
            at += left
            continue
        if data[at + 6] in RECYCLED_TYPES:
            raise FoldCorruptedError(f"the manifest is damaged at byte {at}", path=path)
        at += MANIFEST_HEAD_BYTES + int.from_bytes(data[at + 4 : at + 6], "little")


def _staged(path: Path) -> Path:
    """Hard-link the files that RocksDB may delete when it opens the database."""
    stage = path.with_name(path.name + _STAGE_SUFFIX)
    shutil.rmtree(stage, ignore_errors=True)
    stage.mkdir()
    for pattern in _KEPT:
        for one in path.glob(pattern):
            with suppress(OSError):  # a file system without hard links
                os.link(one, stage / one.name)
    return stage


def _keep(path: Path, stage: Path) -> None:
    torn = path.with_name(path.name + TORN_SUFFIX)
    with os_errors(torn):
        shutil.rmtree(torn, ignore_errors=True)
        stage.rename(torn)
    log.warning(
        "fold %s: its last batches are torn or damaged; it opens at an older state, and its files "
        "are kept as %s",
        path,
        torn,
    )


# -- reading in order


def scan(family: Rdict, floor: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield keys and values from `floor` on; raise if a block on the way is damaged."""
    last = floor
    for key, value in family.items(from_key=floor, read_opt=_scan_options()):
        last = cast("bytes", key)
        yield last, value
    _check_end(family, last)


def scan_keys(family: Rdict, floor: bytes) -> Iterator[bytes]:
    """Yield keys from `floor` on, like `scan`."""
    last = floor
    for key in family.keys(from_key=floor, read_opt=_scan_options()):
        last = cast("bytes", key)
        yield last
    _check_end(family, last)


def _check_end(family: Rdict, last: bytes) -> None:
    """Raise the error at which an iterator ended after `last`, if any."""
    rest = family.iter(_scan_options())
    rest.seek(last)
    if rest.valid() and rest.key() == last:
        rest.next()
    if not rest.valid():
        rest.status()


@contextmanager
def rocks_errors(path: Path) -> Iterator[None]:
    """Convert RocksDB errors, which are plain Exceptions, to fold errors."""
    from rocksdict import DbClosedError

    try:
        yield
    except FoldStoreError:
        raise
    except DbClosedError as error:
        raise FoldStoreError("the store is closed", path=path) from error
    except Exception as error:
        if type(error) is not Exception:
            raise
        text = str(error)
        if text.startswith("Corruption"):
            raise FoldCorruptedError(text, path=path) from error
        if text.startswith("Invalid argument"):
            raise FoldFormatError(text, path=path) from error
        raise StoreIOError(text, path=path) from error


def _scan_options() -> ReadOptions:
    """Return read options for scans, which must not evict frequently read blocks from the cache."""
    from rocksdict import ReadOptions

    options = ReadOptions()
    options.fill_cache(False)  # type: ignore[call-arg]  # the stub lacks the argument
    return options


def _database_options(mode: DBRecoveryMode) -> Options:
    from rocksdict import Options

    jobs = min(os.cpu_count() or 1, JOBS_MAX)
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_wal_recovery_mode(mode)
    options.set_atomic_flush(True)
    options.create_missing_column_families(True)
    options.increase_parallelism(jobs)
    options.set_max_subcompactions(max(jobs // 2, 1))
    options.set_max_total_wal_size(WAL_BYTES_MAX)
    options.set_bytes_per_sync(SYNC_BYTES)
    options.set_wal_bytes_per_sync(SYNC_BYTES)
    return options


def _families(cache_bytes: int, write_buffer_bytes: int) -> dict[str, Options]:
    from rocksdict import BlockBasedIndexType, BlockBasedOptions, Cache, DBCompressionType, Options

    cache = Cache(cache_bytes)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(BLOCK_BYTES)
    table.set_bloom_filter(FILTER_BITS_PER_KEY, False)
    table.set_index_type(BlockBasedIndexType.two_level_index_search())
    table.set_partition_filters(True)
    table.set_metadata_block_size(METADATA_BLOCK_BYTES)
    table.set_cache_index_and_filter_blocks(True)
    table.set_pin_l0_filter_and_index_blocks_in_cache(True)
    table.set_pin_top_level_index_and_filter(True)
    data = Options(raw_mode=True)
    data.set_compression_type(DBCompressionType.lz4())
    data.set_bottommost_compression_type(DBCompressionType.zstd())
    data.set_write_buffer_size(write_buffer_bytes)
    data.set_max_write_buffer_number(WRITE_BUFFERS_MAX)
    data.set_block_based_table_factory(table)
    meta = Options(raw_mode=True)
    meta.set_compression_type(DBCompressionType.lz4())
    meta.set_write_buffer_size(META_BUFFER_BYTES)
    return {"data": data, "meta": meta}
