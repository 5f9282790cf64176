"""What streams and consumers may be called, and how long what people write may be.

Lengths count bytes of UTF-8, as the reference does.
"""

from typing import Final

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4 * 1024
METADATA_BYTES_MAX: Final = 128 * 1024

_FORBIDDEN: Final = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Whether a stream or consumer may be called so; its length is another question."""
    return bool(name) and _FORBIDDEN.isdisjoint(name)


def byte_length(text: str) -> int:
    """How long a text is on the wire."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def metadata_bytes(metadata: dict[str, str]) -> int:
    """How long keys and values are together."""
    return sum(byte_length(key) + byte_length(value) for key, value in metadata.items())
