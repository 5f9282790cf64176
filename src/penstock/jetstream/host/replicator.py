"""The seam every change goes through: planned, proposed, applied.

An entry says all there is to say about a change, its time included. With one copy, what is
proposed is applied at once; with several, a replicator would write it to a log, send it to the
others and apply it when enough of them have it. Who proposes does not know the difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

EntryT = TypeVar("EntryT")
EntryC = TypeVar("EntryC", contravariant=True)


class Replicator(Protocol[EntryC]):
    """Takes entries in order; each is applied once, in that order, on every copy."""

    def propose(self, entry: EntryC) -> None:
        """Have the entry applied, now or later."""


class LocalReplicator(Generic[EntryT]):
    """The one copy there is: proposed is decided."""

    def __init__(self, apply: Callable[[EntryT], None]) -> None:
        self._apply = apply

    def propose(self, entry: EntryT) -> None:
        self._apply(entry)
