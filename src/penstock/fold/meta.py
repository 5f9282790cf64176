"""What a fold remembers of where it came from, beside its data and its cursor."""

from __future__ import annotations

from msgspec import Struct


class SnapshotMeta(Struct, frozen=True):
    """Empty means unknown."""

    identity: str = ""
    """The log the cursor is of."""
    scope: tuple[str, ...] = ()
    """The prefixes that were watched."""
    seen_evicting: bool = False
    """The bucket was seen dropping current values on its own; never forgotten."""
