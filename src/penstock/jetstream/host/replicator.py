"""Replicator interface: every change of a stream is planned, proposed and then applied.

Invariant: an entry describes a change completely, including its timestamp, so applying it needs no
other input. With one replica, `propose` applies the entry before it returns. With several, a
replicator appends the entry to a log, sends it to the peers and applies it once a quorum has it.
A caller that needs the result passes a proposal; it is called once, with the result of the entry or
with the news that the entry will never be applied.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.streams.entries import Applied
    from penstock.store.errors import StoreError

EntryT = TypeVar("EntryT")
EntryC = TypeVar("EntryC", contravariant=True)


class Proposal(Protocol):
    """The token of a proposed entry: gets its outcome."""

    def applied(self, result: Applied) -> None:
        """Take the result of the entry: it is applied, not yet durable."""

    def dropped(self, error: StoreError | None) -> None:
        """Take note that the entry will not be applied: the store failed with this error, or
        (None) this server no longer leads."""


class Replicator(Protocol[EntryC]):
    """Accept entries in order; every replica applies each entry once, in that order."""

    def propose(self, entry: EntryC, proposal: Proposal | None = None) -> None:
        """Apply the entry, now or later, and report the outcome to the proposal."""


class LocalReplicator(Generic[EntryT]):
    """The replicator of a single replica: a proposed entry is decided and applied at once."""

    def __init__(self, apply: Callable[[EntryT, Proposal | None], None]) -> None:
        self._apply = apply

    def propose(self, entry: EntryT, proposal: Proposal | None = None) -> None:
        self._apply(entry, proposal)
