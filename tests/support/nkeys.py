"""User nkeys for tests: the public text of a seed, and signatures made with it."""

from __future__ import annotations

import base64

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

USER_PREFIX = 20 << 3
CRC_POLYNOMIAL = 0x1021


def public_nkey(seed: bytes) -> str:
    """The key as configurations and CONNECT name it: ``U`` and 55 more characters."""
    key = Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw()
    raw = bytes([USER_PREFIX]) + key
    return base64.b32encode(raw + _crc16(raw).to_bytes(2, "little")).decode().rstrip("=")


def signed(seed: bytes, nonce: str) -> bytes:
    """The raw signature of a nonce."""
    return Ed25519PrivateKey.from_private_bytes(seed).sign(nonce.encode())


def url_safe(raw: bytes) -> str:
    """Base64 as clients send it."""
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _crc16(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1) ^ (CRC_POLYNOMIAL if crc & 0x8000 else 0)
    return crc & 0xFFFF
