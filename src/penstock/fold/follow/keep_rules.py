"""Rules for what a fold stores of a value: all of it, a part, only the key, or nothing.

`Keep` is a function with a name. The fold stores the name. A fold that was created with another
name, or with none, is rejected, because its entries would not match. The committer calls the
function for every put in the worker's thread before the put is stored. The function must depend
only on its argument, because a later comparison calls it again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from penstock.fold.errors import FoldMismatch
from penstock.kv.kv_types import KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.fold.store.contract import SnapshotStore


class Keep(NamedTuple):
    """`function` returns the bytes to store for a put, or None to leave the key out."""

    name: str
    function: Callable[[KvUpdate], bytes | None]

    def stored(self, updates: Sequence[KvUpdate]) -> list[KvUpdate]:
        """Return the updates to store. A put of an omitted key becomes a delete, because the store
        may contain an earlier value."""
        return [self._stored(update) if update.op is Op.PUT else update for update in updates]

    def _stored(self, update: KvUpdate) -> KvUpdate:
        value = self.function(update)
        if value is None:
            return structs.replace(update, op=Op.DELETE, value=b"")
        return update if value is update.value else structs.replace(update, value=value)


def _nothing(_: KvUpdate) -> bytes:
    return b""


KEYS_ONLY = Keep("keys-only", _nothing)
"""Keys and versions, with empty values."""


def keep_of(keep: Keep | Callable[[KvUpdate], bytes | None] | None) -> Keep | None:
    """Return a `Keep` for a function, named after it; ValueError if the name is not stable."""
    if keep is None or isinstance(keep, Keep):
        return keep
    name = getattr(keep, "__qualname__", "")
    if not name or "<" in name:
        raise ValueError("a keep function without a name of its own: give Keep(name, function)")
    return Keep(f"{keep.__module__}.{name}", keep)


def check_keep(store: SnapshotStore, keep: Keep | None) -> None:
    """Raise FoldMismatch if a non-empty store was created with another `keep`."""
    wanted, found = "" if keep is None else keep.name, store.meta.keep
    if found != wanted and (store.cursor or store.page(limit=1)):
        raise FoldMismatch(
            f"this fold keeps {_described(found)} of its values, "
            f"and was opened to keep {_described(wanted)}"
        )


def _described(name: str) -> str:
    return f"what {name!r} returns" if name else "all"
