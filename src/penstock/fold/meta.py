"""What a fold remembers of where it came from, beside its data and its cursor."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from penstock.fold.errors import FoldFormatError
from penstock.kv.types import TOKEN_BYTES_MAX, WatchCursor

if TYPE_CHECKING:
    from pathlib import Path


class SnapshotMeta(Struct, frozen=True):
    """Empty means unknown."""

    identity: str = ""
    """The log the cursor is of."""
    scope: tuple[str, ...] = ()
    """The prefixes that were watched."""
    seen_evicting: bool = False
    """The bucket was seen dropping current values on its own; never forgotten."""


def read_cursor(raw: bytes, path: Path) -> WatchCursor:
    """As a store keeps it: nothing before the first commit."""
    if len(raw) > TOKEN_BYTES_MAX:
        raise FoldFormatError(f"a cursor of {len(raw)} bytes", path=path)
    return WatchCursor(raw)


def read_meta(raw: bytes, path: Path) -> SnapshotMeta:
    """As a store keeps it, in JSON: nothing while nothing is known."""
    try:
        return msgspec.json.decode(raw or b"{}", type=SnapshotMeta)
    except msgspec.MsgspecError as error:
        raise FoldFormatError("an origin that is none", path=path) from error
