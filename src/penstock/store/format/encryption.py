"""Encryption at rest: from the server's key to a stream's data key to the frames of a block.

    server key (any text) --scrypt, salt--> root key --HKDF, stream--> wrapping key
    wrapping key seals --> data key of a stream (32 random bytes), kept in a key record
    data key --HKDF, incarnation, block, salt of the writer--> key of the frames of one writer

This module uses no randomness: salts, nonces and data keys are arguments. A nonce is the frame's
number under a key that no other writer of any block has, so it never repeats, not even after a
recovery that cut frames off (docs/decisions/0013-encryption.md). A wrong key raises `WrongKey`,
distinct from a damaged record; neither changes anything.

Key record, 112 bytes, little endian (docs/formats/sealed.md):
    0 magic 8 | 8 u8 cipher | 9 u8 kdf | 10 u16 0 | 12 u32 key number | 16 salt 16
    32 u64 incarnation | 40 nonce 12 | 52 u32 0 | 56 sealed data key 48 | 104 u64 checksum
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from penstock.records.record_codec import checksum

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM, ChaCha20Poly1305

    from penstock.store.format.compression import Data

KEY_BYTES = 32
SALT_BYTES = 16
NONCE_BYTES = 12
TAG_BYTES = 16
KEY_NUMBER_MAX = 0xFFFF
#: Root keys that a server key caches: one per salt, and all streams of a server share one salt.
ROOTS_MAX = 64

_SCRYPT = 1
_SCRYPT_N, _SCRYPT_R, _SCRYPT_P = 1 << 14, 8, 1
_SCRYPT_MEMORY_MAX = 64 << 20

KEY_RECORD_MAGIC = b"PENKEY\x01\0"
_KEY_RECORD = struct.Struct("<8sBBHI16sQ12sI")
_SUM = struct.Struct("<Q")
_SEALED_KEY_BYTES = KEY_BYTES + TAG_BYTES
KEY_RECORD_BYTES = _KEY_RECORD.size + _SEALED_KEY_BYTES + _SUM.size

_WRAPPING = b"penstock wrapping key 1\0"
_FRAMES = b"penstock frame key 1\0"
_NONCE = struct.Struct("<QI")
_FRAME_KEY = struct.Struct("<BQQQ")


class Cipher(IntEnum):
    """How frames are encrypted; the files contain these numbers."""

    NONE = 0
    AES_256_GCM = 1
    CHACHA20_POLY1305 = 2


class WrongKey(Exception):
    """The record or frame is undamaged, but the given key does not open it."""


class DamagedKeyRecord(Exception):
    """Not a key record of this stream, or a damaged one."""


class NotAuthentic(Exception):
    """A frame does not open: forged, from another place, or under another key."""


@dataclass(frozen=True, slots=True)
class DataKey:
    """The key of a stream's blocks. Frames name it by number, so several can be in use at once."""

    secret: bytes = field(repr=False)
    cipher: Cipher = Cipher.AES_256_GCM
    number: int = 1

    def __post_init__(self) -> None:
        if len(self.secret) != KEY_BYTES:
            raise ValueError(f"a data key has {KEY_BYTES} bytes")
        if self.cipher is Cipher.NONE or not 1 <= self.number <= KEY_NUMBER_MAX:
            raise ValueError("a data key has a cipher and a number")


class ServerKey:
    """The configured key. It may be a phrase, so the derivation is slow, once per salt."""

    def __init__(self, secret: str | bytes) -> None:
        self._secret = secret.encode() if isinstance(secret, str) else secret
        if not self._secret:
            raise ValueError("an empty key encrypts nothing")
        self._roots: dict[bytes, bytes] = {}

    def wrapping_key(self, salt: bytes, stream: str, incarnation: int) -> bytes:
        """Return the key that seals the data keys of one stream."""
        bound = _SUM.pack(incarnation) + stream.encode()
        return expand(self._root(salt), _WRAPPING + bound)

    def _root(self, salt: bytes) -> bytes:
        if salt not in self._roots:
            if len(self._roots) >= ROOTS_MAX:
                self._roots.pop(next(iter(self._roots)))
            self._roots[salt] = hashlib.scrypt(
                self._secret,
                salt=salt,
                n=_SCRYPT_N,
                r=_SCRYPT_R,
                p=_SCRYPT_P,
                maxmem=_SCRYPT_MEMORY_MAX,
                dklen=KEY_BYTES,
            )
        return self._roots[salt]


class OpenedKey(NamedTuple):
    """A data key, the index of the server key that opened it (0 = the first), and its salt."""

    key: DataKey
    opened_by: int
    salt: bytes


def expand(key: bytes, info: bytes) -> bytes:
    """Return HKDF-Expand (RFC 5869) with SHA-256 to 32 bytes, of an already uniform key."""
    return hmac.digest(key, info + b"\x01", "sha256")


# ------------------------------------------------------------------------ the key record


def seal_data_key(
    key: DataKey, server: ServerKey, stream: str, incarnation: int, *, salt: bytes, nonce: bytes
) -> bytes:
    """Return the key record. `nonce`: fresh random bytes; `salt`: random, one per server."""
    if len(salt) != SALT_BYTES or len(nonce) != NONCE_BYTES:
        raise ValueError("salt or nonce has the wrong length")
    head = _KEY_RECORD.pack(
        KEY_RECORD_MAGIC, key.cipher, _SCRYPT, 0, key.number, salt, incarnation, nonce, 0
    )
    aead = _aead(key.cipher, server.wrapping_key(salt, stream, incarnation))
    record = head + aead.encrypt(nonce, key.secret, head + stream.encode())
    return record + _SUM.pack(checksum(record))


def open_data_key(
    record: bytes, servers: Sequence[ServerKey], stream: str, incarnation: int
) -> OpenedKey:
    """Return the data key, opened by the first of `servers` (current key first) that fits."""
    cipher, number, salt, nonce = _checked_head(record, incarnation)
    head = record[: _KEY_RECORD.size]
    sealed = record[_KEY_RECORD.size : -_SUM.size]
    from cryptography.exceptions import InvalidTag

    for opened_by, server in enumerate(servers):
        aead = _aead(cipher, server.wrapping_key(salt, stream, incarnation))
        try:
            secret = aead.decrypt(nonce, sealed, head + stream.encode())
        except InvalidTag:
            continue
        return OpenedKey(DataKey(secret, cipher, number), opened_by, salt)
    raise WrongKey(f"the data of stream {stream!r} was encrypted under another server key")


def _checked_head(record: bytes, incarnation: int) -> tuple[Cipher, int, bytes, bytes]:
    if len(record) != KEY_RECORD_BYTES:
        raise DamagedKeyRecord(f"a key record has {KEY_RECORD_BYTES} bytes, not {len(record)}")
    magic, cipher, kdf, zero, number, salt, bound, nonce, zeros = _KEY_RECORD.unpack_from(record)
    (expected,) = _SUM.unpack_from(record, KEY_RECORD_BYTES - _SUM.size)
    if checksum(record[: -_SUM.size]) != expected or magic != KEY_RECORD_MAGIC:
        raise DamagedKeyRecord("the key record does not hold what was written")
    known = (Cipher.AES_256_GCM, Cipher.CHACHA20_POLY1305)
    if cipher not in known or kdf != _SCRYPT or zero or zeros:
        raise DamagedKeyRecord("the key record is of a form not known here")
    if bound != incarnation or not 1 <= number <= KEY_NUMBER_MAX:
        raise DamagedKeyRecord("the key record belongs to another incarnation of the stream")
    return Cipher(cipher), number, salt, nonce


# ------------------------------------------------------------------------ frames


class FrameCipher:
    """Encrypts and opens the frames of one writer of one block.

    A writer takes a salt that was never used before and numbers its frames upwards. It writes
    what it encrypted under a number unchanged, or not at all.
    """

    def __init__(self, key: DataKey, incarnation: int, block: int, salt: int) -> None:
        info = _FRAMES + _FRAME_KEY.pack(key.cipher, incarnation, block, salt)
        self._aead = _aead(key.cipher, expand(key.secret, info))
        self._block = block

    def seal(self, number: int, plain: Data, bound: bytes) -> bytes:
        """Return the encrypted bytes with the tag; `open` must receive the same `bound`."""
        return self._aead.encrypt(_NONCE.pack(self._block, number), plain, bound)

    def open(self, number: int, sealed: Data, bound: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(_NONCE.pack(self._block, number), sealed, bound)
        except InvalidTag:
            raise NotAuthentic("the frame does not open with its key") from None


def _aead(cipher: Cipher, key: bytes) -> AESGCM | ChaCha20Poly1305:
    from cryptography.hazmat.primitives.ciphers import aead

    if cipher is Cipher.AES_256_GCM:
        return aead.AESGCM(key)
    if cipher is Cipher.CHACHA20_POLY1305:
        return aead.ChaCha20Poly1305(key)
    raise ValueError(f"{cipher!r} does not encrypt")
