"""The value record: what a fold keeps behind a key, as one piece of bytes.

    version length: u8, at most 10 | version | value

Memory, LMDB and RocksDB hold folds in this form, which for RocksDB is also the form of other
implementations. Decoding refuses what cannot have been encoded; it never crashes on it.
"""

from __future__ import annotations

from penstock.fold.errors import FoldFormatError
from penstock.kv.kv_types import REVISION_BYTES, TOKEN_BYTES_MAX, KvEntry, KvUpdate, VersionToken

KEY_BYTES_MAX = 65_535
"""What the length of a key has room for in an append log, hence in any fold."""
_REVISION_HEAD = bytes([REVISION_BYTES])


def version_field(update: KvUpdate) -> bytes:
    """The version of an update behind its length."""
    if update.revision >= 0:
        return _REVISION_HEAD + update.revision.to_bytes(REVISION_BYTES, "big")
    token = update.version.raw
    return bytes([len(token)]) + token


def encode_record(update: KvUpdate) -> bytes:
    return version_field(update) + update.value


def decode_record(key: str, record: bytes) -> KvEntry:
    if not record or (size := record[0]) > TOKEN_BYTES_MAX or len(record) <= size:
        raise FoldFormatError(f"the record of key {key!r} is no value record")
    return KvEntry(key, record[1 + size :], VersionToken(record[1 : 1 + size]))


def encode_key(key: str) -> bytes:
    """A key as it is stored; ValueError for one that cannot be."""
    raw = key.encode()
    if len(raw) > KEY_BYTES_MAX:
        raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes, not {len(raw)}")
    return raw


def decode_key(raw: bytes) -> str:
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise FoldFormatError("a key is not UTF-8") from error


def prefix_end(prefix: bytes) -> bytes:
    """The least bytes above every key with this prefix, which is not empty nor ends in 0xFF.

    No byte of UTF-8 is 0xFF, so the last one can always be counted up.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1])
