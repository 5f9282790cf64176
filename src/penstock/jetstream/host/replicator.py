"""Replicator interface: every change of a stream is planned, proposed and then applied.

Invariant: an entry describes a change completely, including its timestamp, so applying it needs no
other input. With one replica, `propose` applies the entry at once. With several, a replicator would
append the entry to a log, send it to the peers and apply it once a quorum has it. The caller that
proposes does not depend on which of the two happens.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

EntryT = TypeVar("EntryT")
EntryC = TypeVar("EntryC", contravariant=True)


class Replicator(Protocol[EntryC]):
    """Accept entries in order; every replica applies each entry once, in that order."""

    def propose(self, entry: EntryC) -> None:
        """Apply the entry, now or later."""


class LocalReplicator(Generic[EntryT]):
    """The replicator of a single replica: a proposed entry is decided and applied at once."""

    def __init__(self, apply: Callable[[EntryT], None]) -> None:
        self._apply = apply

    def propose(self, entry: EntryT) -> None:
        self._apply(entry)
