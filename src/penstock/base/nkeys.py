"""Nkeys: ed25519 keys as typed text with a checksum, and signatures with them.

The text is base32 without padding of `prefix byte | 32 key bytes | CRC16 (XMODEM), little
endian`. A seed has two prefix bytes; together they also encode the kind of its key. The first
letter shows the kind: U user, A account, N server and so on. Decoding accepts only the canonical
spelling of a key. Callers pass randomness as an argument. No error or `repr` shows a seed. The
first signature loads the crypto library, not the import of this module.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

KEY_BYTES: Final = 32
SIGNATURE_BYTES: Final = 64
PUBLIC_CHARS: Final = 56
SEED_CHARS: Final = 58

_CRC_BYTES: Final = 2
_SEED_MARK: Final = 0x90
_BASE32_GROUP: Final = 8


class KeyKind(IntEnum):
    """What a key identifies; the value is its prefix byte."""

    ACCOUNT = 0x00
    CLUSTER = 0x10
    SERVER = 0x68
    OPERATOR = 0x70
    USER = 0xA0
    CURVE = 0xB8


class NkeyError(ValueError):
    """The text is not an nkey of the expected form. The message never quotes the text."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A decoded public key."""

    kind: KeyKind
    key: bytes


@dataclass(frozen=True, slots=True)
class Seed:
    """A decoded seed; it can sign, so `repr` never shows it."""

    kind: KeyKind
    seed: bytes = field(repr=False)


def crc16(data: bytes) -> int:
    """Return the CRC16 as in XMODEM: polynomial 0x1021, start 0."""
    return binascii.crc_hqx(data, 0)


def encode_public(kind: KeyKind, key: bytes) -> str:
    """Return the text of a public key, 56 characters."""
    return _encode(bytes((kind,)) + _checked_length(key))


def decode_public(text: str, kind: KeyKind | None = None) -> PublicKey:
    """Decode a public key; raise NkeyError if it is malformed or not of the given kind."""
    raw = _decode(text, PUBLIC_CHARS)
    found = _kind_of(raw[0])
    if kind is not None and found is not kind:
        raise NkeyError(f"nkey is a public {found.name.lower()} key, not {kind.name.lower()}")
    return PublicKey(found, raw[1:])


def is_public(text: str, kind: KeyKind) -> bool:
    """Return whether the text is a well-formed public key of this kind."""
    try:
        decode_public(text, kind)
    except NkeyError:
        return False
    return True


def encode_seed(kind: KeyKind, seed: bytes) -> str:
    """Return the text of a seed, 58 characters."""
    prefix = bytes((_SEED_MARK | kind >> 5, (kind & 31) << 3))
    return _encode(prefix + _checked_length(seed))


def decode_seed(text: str) -> Seed:
    """Decode a seed."""
    raw = _decode(text, SEED_CHARS)
    if raw[0] & 0xF8 != _SEED_MARK:
        raise NkeyError("nkey is not a seed")
    return Seed(_kind_of((raw[0] & 0x07) << 5 | raw[1] >> 3), raw[2:])


def server_id(random: bytes) -> str:
    """Return a server id: 32 random bytes in the form of a public server key, `N...`."""
    return encode_public(KeyKind.SERVER, random)


def public_from_seed(seed: str) -> str:
    """Return the public key of a seed."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    decoded = decode_seed(seed)
    key = Ed25519PrivateKey.from_private_bytes(decoded.seed).public_key()
    return encode_public(decoded.kind, key.public_bytes_raw())


def sign(seed: str, message: bytes) -> bytes:
    """Return the ed25519 signature of a message, 64 bytes."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    return Ed25519PrivateKey.from_private_bytes(decode_seed(seed).seed).sign(message)


def verify(public: str, message: bytes, signature: bytes) -> bool:
    """Return whether the key's holder signed this message; False for malformed keys."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(signature) != SIGNATURE_BYTES:
        return False
    try:
        key = Ed25519PublicKey.from_public_bytes(decode_public(public).key)
        key.verify(signature, message)
    except (NkeyError, InvalidSignature, ValueError):
        return False
    return True


def _encode(body: bytes) -> str:
    checked = body + crc16(body).to_bytes(_CRC_BYTES, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def _decode(text: str, chars: int) -> bytes:
    """Return the bytes before the checksum, after verifying it."""
    if len(text) != chars:
        raise NkeyError(f"nkey must have {chars} characters, this has {len(text)}")
    try:
        raw = base64.b32decode(text + "=" * (-chars % _BASE32_GROUP))
    except (binascii.Error, ValueError):
        raise NkeyError("nkey is not base32 text") from None
    body, check = raw[:-_CRC_BYTES], raw[-_CRC_BYTES:]
    # Encoding again also rejects set bits after the last byte: a key has one spelling.
    if int.from_bytes(check, "little") != crc16(body) or _encode(body) != text:
        raise NkeyError("nkey has a wrong checksum")
    return body


def _kind_of(prefix: int) -> KeyKind:
    try:
        return KeyKind(prefix)
    except ValueError:
        raise NkeyError("nkey is of an unknown kind") from None


def _checked_length(key: bytes) -> bytes:
    if len(key) != KEY_BYTES:
        raise NkeyError(f"a key has {KEY_BYTES} bytes, this has {len(key)}")
    return key
