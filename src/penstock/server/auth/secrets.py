"""Comparing secrets without telling how much of them was right.

A configured secret is plain text or a bcrypt hash. What looks like a hash is never compared as
text, so the hash itself is no password, however damaged it is.
"""

from __future__ import annotations

import hmac
import re
from typing import Final

BCRYPT_INPUT_BYTES_MAX: Final = 72

_BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$")


def is_bcrypt(configured: str) -> bool:
    """Whether a configured secret is a bcrypt hash."""
    return _BCRYPT.match(configured) is not None


def same_text(configured: str, presented: str) -> bool:
    """Compare plain secrets in time that depends only on their lengths."""
    return hmac.compare_digest(_as_bytes(configured), _as_bytes(presented))


def matches_bcrypt(configured: str, presented: str) -> bool:
    """Compare with a hash. Slow on purpose: not for the event loop's thread."""
    import bcrypt

    # The algorithm reads no further than this; the library refuses longer input.
    secret = _as_bytes(presented)[:BCRYPT_INPUT_BYTES_MAX]
    try:
        return bool(bcrypt.checkpw(secret, _as_bytes(configured)))
    except ValueError:
        return False


def _as_bytes(text: str) -> bytes:
    # JSON may hold lone surrogates, which strict UTF-8 cannot encode.
    return text.encode("utf-8", "surrogatepass")
