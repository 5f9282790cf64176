"""Proposes the entries of one stream, and passes on what each did when it is applied.

With one replica (no replicator) an entry is applied before `propose` returns. Otherwise entries are
in flight until the replicator calls `applied`, in order. Invariants: what an entry did is reported
once, from its result, to the host and to its proposal. Effects decided while entries are in flight
leave after the last of them is applied, or never: they may depend on it. A store that fails while
an entry is applied is reported the same way, so no caller handles it. `StreamHost` owns this.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from penstock.api import refusals
from penstock.base.effects import Send
from penstock.jetstream.host.replicator import EntryOutcome
from penstock.jetstream.streams.entries import ROLLUP_SUBJECT, BatchEntry, Publish, Purge
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.store.contract import NOTHING_REMOVED
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from penstock.base.effects import Effect
    from penstock.jetstream.host.disk_work import Vacancy
    from penstock.jetstream.host.replicator import Proposal, Replicate, Replicator
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import Applied, Entry


class _InFlight:
    """A proposed entry: the token by which the replicator names it."""

    __slots__ = ("promised", "proposals", "replies")

    def __init__(self, proposal: Proposal | None) -> None:
        self.proposals = [] if proposal is None else [proposal]
        self.promised: list[Effect] = []
        """Effects that wait for the entry; they are dropped if the disk fails."""
        self.replies: list[Effect] = []
        """Replies of the API that wait for the entry."""


class Proposals:
    """The entries of one host on their way to its stream."""

    __slots__ = ("_host", "_in_flight", "_is_leading", "_replicator", "_stream", "_unfinished")

    def __init__(self, host: StreamHost) -> None:
        self._host = host
        self._replicator: Replicator | None = None
        self._stream: ReplicatedStream | None = None
        self._in_flight: deque[_InFlight] = deque()
        self._is_leading = True
        self._unfinished: set[Purge] = set()
        """The slices still to come of replicated purges and rollups: a new leader continues."""

    def replicate(self, make: Replicate) -> None:
        """Have entries decided by a replicator from now on; the stream must plan over them."""
        assert isinstance(self._host.stream, ReplicatedStream)
        self._stream = self._host.stream
        self._replicator = make(self)

    @property
    def is_local(self) -> bool:
        """Whether entries are applied at once."""
        return self._replicator is None

    @property
    def are_in_flight(self) -> bool:
        """Whether entries are proposed and not applied."""
        return bool(self._in_flight)

    def propose(self, entry: Entry, proposal: Proposal | None = None) -> None:
        """Have an entry applied, now or later; the proposal gets the outcome."""
        if self._replicator is None:
            self._apply(entry, () if proposal is None else (proposal,))
            return
        if not self._is_leading:
            if proposal is not None:
                proposal.dropped(None)
            return
        assert self._stream is not None
        token = _InFlight(proposal)
        self._in_flight.append(token)
        self._stream.proposed(entry)
        self._replicator.propose(entry, token)

    def promise(self, effects: Iterable[Effect]) -> bool:
        """Let effects wait for the entries in flight; return False if there are none."""
        if self._in_flight:
            self._in_flight[-1].promised.extend(effects)
        return bool(self._in_flight)

    def hold(self, effects: Iterable[Effect]) -> bool:
        """As `promise`, for replies of the API."""
        if self._in_flight:
            self._in_flight[-1].replies.extend(effects)
        return bool(self._in_flight)

    def change(self, entry: Entry) -> Generator[Vacancy, None, Applied | None]:
        """Have an entry applied and wait for its result; None if it was dropped because this server
        no longer leads. Raises StoreError."""
        self._host.collect_lane_results()
        outcome = EntryOutcome()
        self.propose(entry, outcome)
        return outcome.wait()

    def wait(self) -> Generator[Vacancy, None, None]:
        """Wait until the entries in flight are applied or dropped."""
        if self._in_flight:
            outcome = EntryOutcome()
            self._in_flight[-1].proposals.append(outcome)
            yield from outcome.wait()

    # -- from the replicator

    def applied(self, entry: Entry, token: object | None, now_ns: int) -> None:
        """Apply a decided entry; `token` if this server proposed it and still leads."""
        if token is None:
            self._apply(entry, (), is_leading=False)
            return
        own = self._in_flight.popleft()
        assert own is token, "entries are applied in the order in which they were proposed"
        self._apply(entry, own.proposals)
        self._host.promise(own.promised)
        self._host.hold(own.replies)
        self._host.resume(now_ns)

    def role_changed(self, now_ns: int, *, leading: bool) -> None:
        """Start or stop leading; entries in flight are dropped when this server stops."""
        self._is_leading = leading
        if leading:
            self._host.lead(tuple(self._unfinished), now_ns)
        else:
            self.drop_all()
            self._host.step_down()

    def drop_all(self) -> None:
        """Drop every entry in flight with what waits for it."""
        dropped, self._in_flight = self._in_flight, deque()
        if self._stream is not None:
            self._stream.drop_proposed()
        for each in dropped:
            for proposal in each.proposals:
                proposal.dropped(None)

    # -- results

    def _apply(
        self, entry: Entry, proposals: Iterable[Proposal], *, is_leading: bool = True
    ) -> None:
        host = self._host
        try:
            if self._stream is None:
                applied = host.stream.apply(entry)
            else:
                applied = self._stream.apply(entry, is_own=is_leading)
                if isinstance(entry, Purge):
                    self._unfinished.discard(entry)
                self._unfinished.update(applied.rest)
        except StoreError as error:
            self._failed(entry, proposals, error)
            return
        if not is_leading:  # replies, and what consumers do, are up to the leader
            applied = applied._replace(effects=(), rest=())
        if not (proposals and isinstance(entry, Purge)):  # the proposal of a purge reports it
            self._report(entry, applied)
        for proposal in proposals:
            proposal.applied(applied)

    def _report(self, entry: Entry, applied: Applied) -> None:
        host = self._host
        if type(entry) is Publish and entry.special is not None and entry.special.rollup:
            # Consumers see messages removed by a rollup as purged.
            subject = entry.subject if entry.special.rollup == ROLLUP_SUBJECT else None
            if applied.by_limit.msgs:
                host.report_removed(applied.by_limit)
            is_single = applied.rolled_up.msgs == 1 and not applied.rest
            host.report_purged(subject, applied.rolled_up, entry.ts_ns, is_single=is_single)
            applied = applied._replace(removed=NOTHING_REMOVED)
        if applied.rest:  # the reply follows the last slice
            host.chores.roll_up(applied.rest, applied.effects)
            applied = applied._replace(effects=())
        host.report_applied(applied)

    def _failed(self, entry: Entry, proposals: Iterable[Proposal], error: StoreError) -> None:
        """Report that the store failed to the proposals and the publisher."""
        host = self._host
        host.broken(error)
        if isinstance(entry, Publish | BatchEntry) and entry.reply:
            why = refusals.STREAM_STORE_FAILED(err=str(error))
            host.send((Send(entry.reply, PubAcks(host.name).refused(why)),))
        for proposal in proposals:
            proposal.dropped(error)
