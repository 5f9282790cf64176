"""LongList: the items of a list response, encoded one by one.

Items may be long, for example a stream with thousands of subjects, so the handler encodes each item
when it has built it and yields when `is_piece_long`; the response then contains encoded JSON.
"""

from __future__ import annotations

from typing import Final

import msgspec

from penstock.api.json_codec import encode

PIECE_BYTES: Final = 64 * 1024
"""Encoded bytes of a list after which other clients are served."""


class LongList:
    """Encoded items."""

    def __init__(self) -> None:
        self._items: list[bytes] = []
        self._piece_bytes = 0

    def append(self, item: msgspec.Struct) -> None:
        """Encode an item."""
        raw = encode(item)
        self._items.append(raw)
        self._piece_bytes += len(raw)

    @property
    def is_piece_long(self) -> bool:
        """Return whether many bytes were encoded since the last time this was true."""
        if self._piece_bytes < PIECE_BYTES:
            return False
        self._piece_bytes = 0
        return True

    def encoded(self) -> msgspec.Raw:
        """Return the whole list as JSON."""
        return msgspec.Raw(b"[%b]" % b",".join(self._items))
