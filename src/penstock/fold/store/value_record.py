"""The value record: the version and value of a key as one byte string.

    version length: u8, at most 10 | version | value

The memory, LMDB and RocksDB stores use this form; other implementations use it with RocksDB too.
Decoding raises FoldFormatError for invalid records.
"""

from __future__ import annotations

from penstock.fold.errors import FoldFormatError
from penstock.kv.kv_types import REVISION_BYTES, TOKEN_BYTES_MAX, KvEntry, KvUpdate, VersionToken

KEY_BYTES_MAX = 65_535
"""Maximum key size in an append log (u16 length), and therefore in any fold."""
_REVISION_HEAD = bytes([REVISION_BYTES])


def version_field(update: KvUpdate) -> bytes:
    """Return the version of an update, preceded by its length."""
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
    """Return the stored form of a key; ValueError if it is too long."""
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
    """Return the smallest byte string above every key with this prefix.

    The prefix must not be empty or end in 0xFF. UTF-8 never contains 0xFF, so the last byte can
    always be incremented.
    """
    return prefix[:-1] + bytes([prefix[-1] + 1])
