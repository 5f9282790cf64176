"""Rules for names of streams and consumers, and length limits of names, descriptions and metadata.

Lengths are in bytes of UTF-8, as in the reference.
"""

from typing import Final

NAME_BYTES_MAX: Final = 255
DESCRIPTION_BYTES_MAX: Final = 4 * 1024
METADATA_BYTES_MAX: Final = 128 * 1024

_FORBIDDEN: Final = frozenset(" \t\r\n\f.*>\\/")


def is_valid_name(name: str) -> bool:
    """Return whether a stream or consumer may have this name; the length is checked elsewhere."""
    return bool(name) and _FORBIDDEN.isdisjoint(name)


def byte_length(text: str) -> int:
    """Return the length of a text in bytes on the wire."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def metadata_bytes(metadata: dict[str, str]) -> int:
    """Return the total length of keys and values in bytes."""
    return sum(byte_length(key) + byte_length(value) for key, value in metadata.items())
