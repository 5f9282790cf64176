"""The reference's short hash of a name: eight letters and digits, for subjects and identities."""

from __future__ import annotations

import hashlib
from typing import Final

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
LENGTH: Final = 8


def short_hash(name: str | bytes) -> str:
    """Return the eight-character hash of a name."""
    raw = name.encode("utf-8", "surrogateescape") if isinstance(name, str) else name
    digest = hashlib.sha256(raw).digest()
    return "".join(DIGITS[byte % len(DIGITS)] for byte in digest[:LENGTH])
