"""Compare secrets without revealing through timing how much of them matched.

A configured secret is plain text or a bcrypt hash. Text that looks like a hash is never compared as
plain text, so even a damaged hash is not itself a password. Signatures are decoded here, too.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import re
from typing import Final

BCRYPT_INPUT_BYTES_MAX: Final = 72
SIGNATURE_CHARS_MAX: Final = 88

_URL_TO_STANDARD = str.maketrans("-_", "+/")
_BCRYPT = re.compile(r"\$2[abxy]\$\d{2}\$")


def is_bcrypt(configured: str) -> bool:
    """Return whether a configured secret is a bcrypt hash."""
    return _BCRYPT.match(configured) is not None


def same_text(configured: str, presented: str) -> bool:
    """Compare plain secrets in time that depends only on their lengths."""
    return hmac.compare_digest(_as_bytes(configured), _as_bytes(presented))


def matches_bcrypt(configured: str, presented: str) -> bool:
    """Compare with a hash. Slow by design: do not call on the event loop's thread."""
    import bcrypt

    # bcrypt uses only this many bytes; the library refuses longer input.
    secret = _as_bytes(presented)[:BCRYPT_INPUT_BYTES_MAX]
    try:
        return bool(bcrypt.checkpw(secret, _as_bytes(configured)))
    except ValueError:
        return False


def decode_signature(text: str) -> bytes | None:
    """Decode base64 of either alphabet, with or without padding, because clients differ."""
    if not text or len(text) > SIGNATURE_CHARS_MAX:
        return None
    bare = text.rstrip("=").translate(_URL_TO_STANDARD)
    try:
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def _as_bytes(text: str) -> bytes:
    # JSON may hold lone surrogates, which strict UTF-8 cannot encode.
    return text.encode("utf-8", "surrogatepass")
