"""What a fold remembers of where it came from, beside its data and its cursor."""

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
    """Empty means unknown."""

    identity: str = ""
    """The log the cursor is of."""
    scope: tuple[str, ...] = ()
    """The prefixes that were watched."""
    seen_evicting: bool = False
    """The bucket was seen dropping current values on its own; never forgotten."""
    losses: int | None = None
    """The bucket's count of losses that the entries reflect; None until a repair has ended."""
    records: int | None = None
    """How many records the bucket had, where it does not count losses."""
    witnesses: tuple[Witness, ...] = ()
    doubt: str = ""
    """Why the fold may differ from its bucket although it follows it; empty: it does not."""
    keep: str = ""
    """The name of what was kept of values (`penstock.fold.follow.keep_rules`); empty is all."""


def encode_meta(meta: SnapshotMeta) -> bytes:
    """JSON, with a checksum of all other fields: engines do not notice every flipped bit."""
    fields = msgspec.to_builtins(meta)
    return json.dumps({**fields, CHECKSUM: checksum_of(fields)}).encode()


def read_cursor(raw: bytes, path: Path) -> WatchCursor:
    """As a store keeps it: nothing before the first commit."""
    if len(raw) > TOKEN_BYTES_MAX:
        raise FoldFormatError(f"a cursor of {len(raw)} bytes", path=path)
    return WatchCursor(raw)


def read_meta(raw: bytes, path: Path) -> SnapshotMeta:
    """As a store keeps it, in JSON: nothing while nothing is known."""
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
