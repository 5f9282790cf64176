"""Long work of a stream host, done in later turns, one slice per turn.

Rollups of many messages, limits that remove many messages at once, acks and deleted consumers that
free many messages, and releasing the memory of a purge. The stream driver requests one slice per
turn, so other streams and clients are served in between. Invariant: a crash between two slices
breaks no promise to a client. The reply to a rollup waits for its last slice, and opening the
stream removes whatever limits or consumers had not removed yet.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from penstock.api.stream_config import Retention
from penstock.jetstream.host import interest_retention
from penstock.jetstream.host.replicator import EntryOutcome
from penstock.jetstream.streams.entries import Purge, Remove, Trim
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from penstock.base.effects import Effect
    from penstock.jetstream.host.disk_work import Vacancy
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.entries import Applied
    from penstock.store.contract import Range


T = TypeVar("T")
Slices: TypeAlias = "Generator[Vacancy | None, None, T]"
"""Work in slices: yields after each slice, and a `Vacancy` while it waits for an entry."""


class RollUp:
    """The remaining slices of one rollup, and the effects to release after the last.

    It is the proposal of each slice; while a slice is proposed and not applied, it proposes no
    other.
    """

    __slots__ = ("_host", "_proposed", "effects", "rest")

    def __init__(
        self, host: StreamHost, rest: Iterable[Purge], effects: tuple[Effect, ...]
    ) -> None:
        self._host = host
        self._proposed: Purge | None = None
        self.rest = deque(rest)
        self.effects = effects

    @property
    def is_ready(self) -> bool:
        """Whether no slice is in flight."""
        return self._proposed is None

    @property
    def is_over(self) -> bool:
        """Whether every slice was applied, or will never be."""
        return self._proposed is None and not self.rest

    def propose_next(self) -> None:
        """Propose the next slice."""
        self._proposed = self.rest.popleft()
        self._host.propose(self._proposed, self)

    def applied(self, result: Applied) -> None:
        assert self._proposed is not None
        entry, self._proposed = self._proposed, None
        self._host.report_purged(entry.subject or None, result.removed, entry.ts_ns)
        self.rest.extend(result.rest)
        if not self.rest:
            self._host.promise(self.effects)

    def dropped(self, error: StoreError | None) -> None:
        self._proposed, self.effects = None, ()
        self.rest.clear()


class PurgeSlice(EntryOutcome):
    """The outcome of one slice of a purge, which the consumers learn as soon as it is applied."""

    __slots__ = ("_entry", "_host", "_is_first", "_now_ns")

    def __init__(self, host: StreamHost, entry: Purge, now_ns: int, *, is_first: bool) -> None:
        super().__init__()
        self._host = host
        self._entry = entry
        self._now_ns = now_ns
        self._is_first = is_first

    def applied(self, result: Applied) -> None:
        is_part = bool(self._entry.subject or self._entry.keep)
        is_all = self._is_first and not result.rest
        self._host.report_purged(
            self._entry.subject or None,
            result.removed,
            self._now_ns,
            is_single=is_part and is_all and result.removed.msgs == 1,
        )
        super().applied(result)


class Chores:
    """The unfinished work of one host."""

    __slots__ = ("_acked", "_host", "_roll_ups", "_sweep_from", "_trim")

    def __init__(self, host: StreamHost) -> None:
        self._host = host
        self._roll_ups: deque[RollUp] = deque()
        self._acked: deque[Range] = deque()  # ranges consumers finished with, not examined yet
        self._trim = EntryOutcome()  # of the last slice of removals by limits
        self._trim.is_known = True
        self._sweep_from = 0  # where the sweep for unneeded messages resumes; 0: no sweep runs

    @property
    def are_left(self) -> bool:
        """Whether `go_on` has work to do now."""
        host = self._host
        store = host.stream.store
        return host.failure is None and bool(
            (self._roll_ups and self._roll_ups[0].is_ready)
            or self._acked
            or self._sweep_from
            or (store.is_over and self._trim.is_known)
            or store.has_remains
        )

    @property
    def _are_waiting(self) -> bool:
        """Whether work waits for an entry in flight."""
        return self._host.failure is None and bool(self._roll_ups or not self._trim.is_known)

    def forget(self) -> None:
        """Forget all work: the leader does it."""
        self._roll_ups.clear()
        self._acked.clear()
        self._sweep_from = 0

    def roll_up(self, rest: tuple[Purge, ...], effects: tuple[Effect, ...]) -> None:
        """Queue the remaining slices of a rollup, and the effects to release after the last."""
        self._roll_ups.append(RollUp(self._host, rest, effects))

    def remove_acked(self, acked: tuple[Range, ...]) -> None:
        """Remove messages that a consumer finished with, if no other consumer needs them."""
        host = self._host
        if host.stream.cfg.retention is Retention.LIMITS:
            return
        if sum(last - first + 1 for first, last in acked) > interest_retention.SWEEP_LOOKS:
            self._acked.extend(acked)
            return
        gone = interest_retention.acked_by_all(host.stream.store, host.consumers.values(), acked)
        self._take_out(gone, host.stream.last_ts_ns)

    def _take_out(self, seqs: tuple[int, ...], now_ns: int) -> None:
        """Remove messages that no consumer needs; if that fails, the next start removes them."""
        host = self._host
        if not seqs or host.failure is not None or interest_retention.has_unserved(host.files):
            return  # an unserved consumer may need them
        host.proposals.propose(Remove(now_ns, seqs))
        host.note(host.stream)

    def sweep(self, now_ns: int) -> None:
        """Start a sweep for messages that no consumer needs, and run its first slice."""
        self._sweep_from = max(1, self._host.stream.store.state().first_seq)
        self._sweep_on(now_ns)

    def finish(self, now_ns: int) -> Slices[None]:
        """Do all remaining work."""
        while self.are_left or self._are_waiting:
            if self.are_left:
                self.go_on(now_ns)
                yield None
            else:
                yield from self._host.proposals.wait()

    def purge(self, entry: Purge, now_ns: int) -> Slices[int | None]:
        """Purge messages; return how many were removed, or None if this server stopped leading
        meanwhile. Raises StoreError."""
        host = self._host
        yield from self.finish(now_ns)
        total = 0
        rest: tuple[Purge, ...] = (entry,)
        while rest:
            outcome = PurgeSlice(host, entry, now_ns, is_first=not total)
            host.propose(rest[0], outcome)
            applied = yield from outcome.wait()
            if applied is None:
                return None
            total += applied.removed.msgs
            rest = applied.rest
            if rest:
                yield None
        return total

    def go_on(self, now_ns: int) -> None:
        """Do one slice."""
        host = self._host
        host.collect_lane_results()
        self._slice(now_ns)
        if not self.are_left:
            host.open_lane()
            host.note(host.stream)

    def _slice(self, now_ns: int) -> None:
        host = self._host
        store = host.stream.store
        try:
            if self._roll_ups and self._roll_ups[0].is_ready:
                self._roll_on(self._roll_ups[0])
            elif store.is_over and self._trim.is_known:
                self._trim = EntryOutcome()
                host.propose(Trim(host.stream.last_ts_ns), self._trim)
            elif self._acked:
                self._remove_acked(*self._acked.popleft())
            elif self._sweep_from:
                self._sweep_on(now_ns)
            else:
                store.shed()
        except StoreError as error:
            host.broken(error)

    def _roll_on(self, roll_up: RollUp) -> None:
        if not roll_up.is_over:
            roll_up.propose_next()
        if roll_up.is_over:
            self._roll_ups.popleft()

    def _remove_acked(self, first: int, last: int) -> None:
        host = self._host
        consumers = host.consumers.values()
        gone, following = interest_retention.needed_by_none(
            host.stream.store, consumers, first, last
        )
        if following <= last:
            self._acked.appendleft((following, last))
        self._take_out(gone, host.stream.last_ts_ns)

    def _sweep_on(self, now_ns: int) -> None:
        host = self._host
        store, retention = host.stream.store, host.stream.cfg.retention
        first, last, self._sweep_from = self._sweep_from, store.last_seq, 0
        if retention is Retention.LIMITS or host.failure is not None:
            return
        if host.consumers:
            is_queue = retention is Retention.WORKQUEUE
            consumers = host.consumers.values()
            gone, following = interest_retention.needed_by_none(
                store, consumers, first, last, only_wanted=is_queue
            )
            self._sweep_from = following if following <= last else 0
            self._take_out(gone, now_ns)
        elif retention is Retention.INTEREST and store.next_seq((), first):
            host.propose(Purge(now_ns))
