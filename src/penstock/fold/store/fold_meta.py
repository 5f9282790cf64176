"""The metadata of a fold: its origin and loss counts, stored beside its data and cursor."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from penstock.fold.artifact.manifest import CHECKSUM, OLDER_FIELDS, checksum_of
from penstock.fold.errors import FoldCorruptedError, FoldFormatError
from penstock.fold.store.log_witnesses import Witness  # noqa: TC001 - msgspec reads it
from penstock.kv.kv_types import TOKEN_BYTES_MAX, WatchCursor

if TYPE_CHECKING:
    from pathlib import Path

CURSOR_BYTES = 48
CURSOR_FIELDS_BYTES = 16


class SnapshotMeta(Struct, frozen=True):
    """The metadata of a fold; empty fields mean unknown."""

    identity: str = ""
    """The log that the cursor belongs to."""
    scope: tuple[str, ...] = ()
    """The prefixes of the watch."""
    seen_evicting: bool = False
    """The bucket could evict current values at some time (`LogInfo.evicts_current`); stays set."""
    losses: int | None = None
    """The bucket's loss count that the entries reflect; None until a repair has ended."""
    records: int | None = None
    """Number of records in the bucket, if it does not count losses."""
    witnesses: tuple[Witness, ...] = ()
    doubt: str = ""
    """Why the fold may differ from its bucket although it follows it; empty if no reason."""
    keep: str = ""
    """The name of the `Keep` rule (`penstock.fold.follow.keep_rules`); empty for whole values."""


def encode_meta(meta: SnapshotMeta) -> bytes:
    """Return JSON with a checksum of all fields, because engines do not detect every bit flip."""
    fields = msgspec.to_builtins(meta)
    return json.dumps({**fields, CHECKSUM: checksum_of(fields)}).encode()


def encode_cursor(cursor: WatchCursor, *, has_origin: bool) -> bytes:
    """Return a cursor with a checksum, for engines that have none, and whether the store has an
    origin too. Its length is such that no flipped bit of a length makes it a plain cursor."""
    fields = bytes([len(cursor.raw), has_origin]) + cursor.raw.ljust(CURSOR_FIELDS_BYTES - 2, b"\0")
    return fields + blake2b(fields, digest_size=CURSOR_BYTES - CURSOR_FIELDS_BYTES).digest()


def read_cursor(raw: bytes, path: Path) -> WatchCursor:
    """Decode a stored cursor, plain or with a checksum; empty before the first commit."""
    return _read_cursor(raw, path)[0]


def _read_cursor(raw: bytes, path: Path) -> tuple[WatchCursor, bool]:
    if len(raw) <= TOKEN_BYTES_MAX:
        return WatchCursor(raw), False
    if len(raw) != CURSOR_BYTES:
        raise FoldFormatError(f"a cursor of {len(raw)} bytes", path=path)
    size, has_origin = raw[0], bool(raw[1])
    cursor = WatchCursor(raw[2 : 2 + min(size, TOKEN_BYTES_MAX)])
    if raw != encode_cursor(cursor, has_origin=has_origin):
        raise FoldCorruptedError("the cursor is not what was written", path=path)
    return cursor, has_origin


def check_stored(cursor: bytes | None, origin: bytes | None, path: Path, *, has_data: bool) -> None:
    """Raise unless the cursor and origin of a store are whole, and none is missing.

    A commit writes data, cursor and origin in one transaction, so data without a cursor is damage.
    """
    if cursor is None:
        if has_data or origin is not None:
            raise FoldCorruptedError("the cursor is missing", path=path)
        return
    _, has_origin = _read_cursor(cursor, path)
    if has_origin and origin is None:
        raise FoldCorruptedError("the origin is missing", path=path)
    read_meta(origin or b"", path)


def read_meta(raw: bytes, path: Path) -> SnapshotMeta:
    """Decode stored metadata in JSON; empty while nothing is known."""
    try:
        fields = msgspec.json.decode(raw or b"{}", type=dict[str, object])
        checksum = fields.pop(CHECKSUM, None)
        meta = msgspec.convert(fields, SnapshotMeta)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise FoldFormatError("an origin that is none", path=path) from error
    is_older = checksum is None and fields.keys() <= OLDER_FIELDS
    if not is_older and checksum != checksum_of(fields):
        raise FoldFormatError("an origin that is not what was written", path=path)
    return meta
