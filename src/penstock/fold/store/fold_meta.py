"""The metadata of a fold: its origin and loss counts, stored beside its data and cursor."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import msgspec
from msgspec import Struct

from penstock.fold.artifact.manifest import CHECKSUM, OLDER_FIELDS, checksum_of
from penstock.fold.errors import FoldFormatError
from penstock.fold.store.log_witnesses import Witness  # noqa: TC001 - msgspec reads it
from penstock.kv.kv_types import TOKEN_BYTES_MAX, WatchCursor

if TYPE_CHECKING:
    from pathlib import Path


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


def read_cursor(raw: bytes, path: Path) -> WatchCursor:
    """Decode a stored cursor; empty before the first commit."""
    if len(raw) > TOKEN_BYTES_MAX:
        raise FoldFormatError(f"a cursor of {len(raw)} bytes", path=path)
    return WatchCursor(raw)


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
