"""What a fold stores of a value: all of it, a part, nothing but the key, or not even that.

`Keep` is a function and the name it is known by. The name is stored with the fold: a fold that was
made with another one, or with none, is refused, since it holds what this one would not. The
function is called for every put before it is stored, in the worker's thread, and must depend on its
argument alone: what was stored is compared with what it returns.
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
        """The updates as they are stored. A key that is left out is deleted: it may be there."""
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
    """A function with its own name, where it has one that means the same the next time."""
    if keep is None or isinstance(keep, Keep):
        return keep
    name = getattr(keep, "__qualname__", "")
    if not name or "<" in name:
        raise ValueError("a keep function without a name of its own: give Keep(name, function)")
    return Keep(f"{keep.__module__}.{name}", keep)


def check_keep(store: SnapshotStore, keep: Keep | None) -> None:
    """FoldMismatch if a store that holds anything was made with another `keep`."""
    wanted, found = "" if keep is None else keep.name, store.meta.keep
    if found != wanted and (store.cursor or store.page(limit=1)):
        raise FoldMismatch(
            f"this fold keeps {_told(found)} of its values, and was opened to keep {_told(wanted)}"
        )


def _told(name: str) -> str:
    return f"what {name!r} returns" if name else "all"
