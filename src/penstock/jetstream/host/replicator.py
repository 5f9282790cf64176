"""Replicator interface: every change of a stream is planned, proposed and then applied.

Invariant: an entry describes a change completely, including its timestamp, so applying it needs no
other input. With one replica, `propose` applies the entry before it returns. With several, a
replicator appends the entry to a log, sends it to the peers and applies it once a quorum has it.

Duties of a replicator that is not local, on the thread of the host and never within a call from it:

1. call `applied` for every decided entry, in order, with the token of `propose` if this server
   proposed it and still leads, else with None, and the time;
2. call `role_changed(leading=False)` when this server stops leading: tokens that have no outcome
   are dropped, even though their entries may be decided later;
3. call `role_changed(leading=True)` once this server leads and every decided entry is applied;
4. run the host's driver afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

from penstock.jetstream.host.disk_work import Vacancy

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from penstock.jetstream.streams.entries import Applied, Entry
    from penstock.store.errors import StoreError


class Proposal(Protocol):
    """What waits for the outcome of a proposed entry; is called once."""

    def applied(self, result: Applied) -> None:
        """Take the result of the entry: it is applied, not yet durable."""

    def dropped(self, error: StoreError | None) -> None:
        """Take note that the entry will not be applied: the store failed with this error, or
        (None) this server no longer leads."""


class Replica(Protocol):
    """What a replicator calls."""

    def applied(self, entry: Entry, token: object | None, now_ns: int) -> None:
        """Apply a decided entry."""

    def role_changed(self, now_ns: int, *, leading: bool) -> None:
        """Start or stop leading."""


class Replicator(Protocol):
    """Accepts entries in order; every replica applies each entry once, in that order."""

    def propose(self, entry: Entry, token: object) -> None:
        """Have an entry decided and applied later."""


Replicate: TypeAlias = "Callable[[Replica], Replicator]"
"""Returns the replicator of a new stream host."""


class EntryOutcome:
    """A proposal that an API handler waits for."""

    __slots__ = ("_again", "error", "is_known", "result")

    def __init__(self) -> None:
        self.is_known = False
        self.result: Applied | None = None
        """The result; None if the entry was dropped."""
        self.error: StoreError | None = None
        self._again: list[Callable[[], None]] = []

    def applied(self, result: Applied) -> None:
        self.result = result
        self._end()

    def dropped(self, error: StoreError | None) -> None:
        self.error = error
        self._end()

    def _end(self) -> None:
        self.is_known = True
        again, self._again = self._again, []
        for call in again:
            call()

    def when_free(self, again: Callable[[], None]) -> None:
        """Call `again` when the outcome is known."""
        self._again.append(again)

    def wait(self) -> Generator[Vacancy, None, Applied | None]:
        """Wait for the outcome and return the result; None if the entry was dropped because this
        server no longer leads. Raises StoreError."""
        while not self.is_known:
            yield Vacancy(self)
        if self.error is not None:
            raise self.error
        return self.result
