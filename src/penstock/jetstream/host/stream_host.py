"""One stream with its consumers: stored messages wake consumers, acks may remove messages.

Invariant: a host owns its stream, consumers and lists; other code reads them and changes them only
through its methods. Effects collect in two lists: those that may leave at once, and those that may
leave when everything done so far is durable (`promise`, `hold`). One driver calls the host:

1. step: report what arrived (`publish`, `touched`, `acked`, `propose`, `fetched`, ...);
2. `tick(now)` when `next_deadline_ns` has passed;
3. `ready(now)`: perform what each result contains, in order, before taking the next result;
4. `commit()`: run the returned work in order, unless the work of an earlier commit still runs;
5. `advance(commits, failure)`: hand the work back, then repeat from 3.

Decision 30 describes this interface, and how entries are proposed and applied.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from penstock.api import refusals
from penstock.api.stream_config import Retention
from penstock.jetstream.consumers.consumer import Consumer
from penstock.jetstream.consumers.pull_delivery import Closing
from penstock.jetstream.deadline_queue import DeadlineQueue
from penstock.jetstream.host import interest_retention
from penstock.jetstream.host.chores import Chores
from penstock.jetstream.host.consumer_registry import ConsumerRegistry
from penstock.jetstream.host.lane_control import LaneControl
from penstock.jetstream.host.pending_replies import NOTHING_READY, PendingReplies, Ready
from penstock.jetstream.host.proposals import Proposals
from penstock.jetstream.host.publish_intake import PublishIntake
from penstock.jetstream.host.wakeups import WAKES_AT_ONCE, Wakeups
from penstock.jetstream.streams.lanes.lane_policy import removed_one_by_one
from penstock.jetstream.streams.stream import Stream
from penstock.store.contract import NOTHING_REMOVED
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.base.effects import Effect
    from penstock.base.message import Inbound
    from penstock.jetstream.host.asset_files import ConsumerFiles, StreamFiles
    from penstock.jetstream.host.pending_replies import Commit
    from penstock.jetstream.host.replicator import Proposal, Replicate
    from penstock.jetstream.sources.stream_sources import StreamSources
    from penstock.jetstream.streams.entries import Applied, Entry, PlanNote, Purge
    from penstock.jetstream.streams.lanes.publish_lane import StreamLane
    from penstock.store.contract import Range, Removed
    from penstock.store.errors import DiskFull


class StreamHost:
    """A stream, its consumers, and the effects that wait for their disk."""

    def __init__(
        self,
        stream: Stream,
        files: StreamFiles | None,
        *,
        incarnation: str = "",
        replicate: Replicate | None = None,
    ) -> None:
        """`replicate` returns what decides the entries of a `ReplicatedStream`."""
        self.stream: Final = stream
        self.files: Final = files
        self.incarnation: Final = incarnation
        """Identifies this stream; unlike that of any other stream, even of the same name."""
        self.registry: Final = ConsumerRegistry()
        self.consumers: Mapping[str, Consumer] = self.registry.by_name
        self._now: list[Effect] = []
        self._is_closed = False
        self._is_deleted = False
        self._deadline_queue: DeadlineQueue[Stream | Consumer | StreamSources] = DeadlineQueue()
        self.proposals: Final = Proposals(self)
        """Entries on their way to the stream."""
        self.lanes: Final = LaneControl(stream)
        self._stream_sources: StreamSources | None = None
        self.positions: Final = None if files is None else files.positions()
        self._commits = PendingReplies(stream, self.positions, self.registry.files)
        self.chores: Final = Chores(self)
        """Work that was started and continues in later turns."""
        self._intake = PublishIntake(self)
        self._waking = Wakeups(self.registry.by_name)
        if replicate is not None:
            self.proposals.replicate(replicate)

    @property
    def name(self) -> str:
        return self.stream.cfg.name

    @property
    def is_closed(self) -> bool:
        """Whether the stream is deleted or no longer served."""
        return self._is_closed

    @property
    def lane(self) -> StreamLane | None:
        """The publish lane, for the router and the lanes of sources; only the host changes it."""
        return self.lanes.lane

    @property
    def stream_sources(self) -> StreamSources | None:
        """The source readers, if the stream copies others."""
        return self._stream_sources

    def attach_sources(self, sources: StreamSources | None) -> None:
        """Set the source readers of a stream that copies others, or none."""
        self._stream_sources = sources

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be written any more; None while the disk works."""
        return self._commits.failure

    @property
    def hindrance(self) -> Exception | None:
        """Why nothing can be stored, now (the disk is full) or ever; None if messages can be."""
        return self._commits.failure or self._commits.full

    @property
    def cannot_store(self) -> bool:
        """Whether nothing can be stored, now or ever."""
        return self.hindrance is not None

    # -- effects

    def send(self, effects: Iterable[Effect]) -> None:
        """Take effects that may leave at once."""
        self._now.extend(effects)

    def promise(self, effects: Iterable[Effect]) -> None:
        """Take effects that wait until everything done so far is applied and durable."""
        if not self.proposals.promise(effects):
            self._commits.promise(effects)

    def hold(self, effects: Iterable[Effect]) -> None:
        """As `promise`, for replies to API requests: a stream that failed still replies."""
        if not self.proposals.hold(effects):
            self._commits.held.extend(effects)

    # -- messages in

    def publish(self, msg: Inbound, now_ns: int, note: PlanNote | None = None) -> None:
        """Plan and propose a message, or queue or refuse it."""
        self._intake.publish(msg, now_ns, note)

    def collect_lane_results(self) -> None:
        """Take over what the publish lane did since the last call."""
        lane = self.lanes.lane
        if lane is None:
            return
        taken, gone = lane.take_results()
        if taken:
            self.stream.lane_appended()
            self._waking.taken()
            if self._stream_sources is not None:
                self._stream_sources.collect_results()
        if gone and self.consumers:
            self.report_removed(removed_one_by_one(gone))

    def broken(self, error: StoreError) -> None:
        """Record that the store can no longer be written."""
        self._commits.fail(error, self.lanes.lane)

    def propose(self, entry: Entry, proposal: Proposal | None = None) -> None:
        """Have a planned change applied, now or later; the proposal gets the outcome."""
        self.collect_lane_results()
        self.proposals.propose(entry, proposal)

    def report_applied(self, applied: Applied) -> None:
        """Take what an entry did: replies, stored messages, removals."""
        self._commits.promise(applied.effects)
        if applied.is_bulk:
            self._waking.taken()
        if applied.stored:
            self._waking.stored(applied.stored)
        if applied.removed.msgs and self.consumers:
            self.report_removed(applied.removed)

    def report_removed(self, removed: Removed) -> None:
        """Report messages removed by limits or deletions to the consumers."""
        now_ns = self.stream.last_ts_ns
        for consumer in list(self.consumers.values()):
            self._take(consumer, consumer.removed(removed.seqs, now_ns))

    # -- consumers

    def add_consumer(self, consumer: Consumer, files: ConsumerFiles | None) -> None:
        self.registry.add(consumer, files)
        self._waking.add(consumer.name)
        self.open_lane()
        self.note(consumer)

    def drop_consumer(self, name: str, effects: Iterable[Effect], now_ns: int) -> None:
        """Remove a consumer; the caller removes its files."""
        consumer = self.registry.drop(name)
        self._deadline_queue.forget(consumer)
        self._waking.forget(name)
        self._commits.unsynced.discard(name)
        self.open_lane()
        self._now.extend(effects)
        if self.stream.cfg.retention is Retention.INTEREST:
            self.chores.sweep(now_ns)

    def touched(self, consumer: Consumer, effects: Iterable[Effect]) -> None:
        """Take the effects of a call made directly on a consumer, and wake the consumer."""
        self._take(consumer, effects)
        self._waking.add(consumer.name)

    def _take(self, consumer: Consumer, effects: Iterable[Effect]) -> None:
        self._now.extend(effects)
        self.note(consumer)
        if consumer.busy:
            self._waking.add(consumer.name)
        acked = consumer.take_acked()
        if acked:
            self.chores.remove_acked(acked)

    def note(self, machine: Stream | Consumer | StreamSources) -> None:
        if isinstance(machine, Consumer):
            self._commits.changed.add(machine.name)
        # While what is due waits for entries in flight, it has no deadline of its own.
        is_held = machine is self.stream and self._intake.is_held
        due_ns = None if is_held else machine.next_deadline_ns()
        self._deadline_queue.note(machine, due_ns)
        if machine is self.stream:
            self.lanes.tend(due_ns, is_alone=self._is_alone)

    def acked(
        self,
        consumer: Consumer,
        effects: Iterable[Effect],
        acked: tuple[Range, ...],
        *,
        is_awaited: bool,
    ) -> None:
        """Take the effects of an ack; with `is_awaited`, hold them until the ack is durable."""
        if is_awaited:
            self.hold(effects)
            self._commits.unsynced.add(consumer.name)
        else:
            self._now.extend(effects)
        self.note(consumer)
        self._waking.add(consumer.name)
        if acked:
            self.chores.remove_acked(acked)

    # -- retention by interest

    def wants(self, subject: str) -> bool:
        """Whether a consumer is interested in the subject; an unserved consumer may be."""
        is_wanted = any(consumer.wants(subject) for consumer in self.consumers.values())
        return is_wanted or interest_retention.has_unserved(self.files)

    # -- turns

    def ready(self, now_ns: int) -> Iterator[Ready]:
        """Let the consumers deliver; yield what the driver performs, in order.

        The driver performs each result before it takes the next one: consumers with a compiled
        lane write straight into outboxes then, and must not overtake earlier effects. It may stop
        at an empty result; the other consumers then deliver in the next call.
        """
        if not self._is_closed:
            self._wake(now_ns)
        while self._now or (self._stream_sources is not None and self._stream_sources.wires):
            yield self._take_ready()
        while not self._is_closed and (consumer := self._waking.take_direct()) is not None:
            self._take(consumer, consumer.wake(now_ns, direct=True))
            while self._now:
                yield self._take_ready()
            yield NOTHING_READY

    def remaining(self) -> Ready | None:
        """Return what is decided already, without letting consumers deliver more; None if nothing
        is. Repeat until then."""
        return self._take_ready() if self._now else None

    def _take_ready(self) -> Ready:
        effects, self._now = self._now, []
        sources = self._stream_sources
        return Ready(() if sources is None else sources.take_wires(), effects)

    def _wake(self, now_ns: int) -> None:
        """Report newly visible messages to the consumers, and wake those without a lane."""
        self.collect_lane_results()
        self._waking.announce(self.stream.store, now_ns)
        while self._waking.is_busy:
            is_busy, woken = False, 0
            for consumer in self._waking.take_ready():
                woken += 1
                self._take(consumer, consumer.wake(now_ns))
                is_busy |= consumer.busy
            if is_busy or woken == WAKES_AT_ONCE:
                return
        if not self.stream.is_timeless:
            self.note(self.stream)

    @property
    def waits_for_sync(self) -> bool:
        """Whether nothing can be delivered before the next sync: only the lane stored something."""
        is_idle = self._waking.is_idle and not (self._now or self._stream_sources)
        return is_idle and self.stream.store.sync_wanted

    @property
    def is_busy(self) -> bool:
        """Whether `ready` stopped at a bound, or chores are left."""
        waking = self._waking
        return waking.is_busy or waking.has_direct or self.chores.are_left

    @property
    def next_deadline_ns(self) -> int | None:
        """Return when to call `tick`, at the latest; None if nothing is pending."""
        return self._deadline_queue.next_ns

    def tick(self, now_ns: int) -> list[Consumer]:
        """Handle the deadlines that are due; return consumers that were inactive too long."""
        abandoned = []
        for machine in self._deadline_queue.due(now_ns):
            if isinstance(machine, Stream):
                self._tick_stream(now_ns)
                continue
            if not isinstance(machine, Consumer):
                machine.tick(now_ns)
                continue
            if self.consumers.get(machine.name) is not machine:
                continue
            self._take(machine, machine.tick(now_ns))
            self._waking.add(machine.name)
            if machine.is_abandoned(now_ns):
                abandoned.append(machine)
        return abandoned

    def _tick_stream(self, now_ns: int) -> None:
        if self.proposals.are_in_flight:
            # What is due may depend on them, and the last tick may be among them.
            self._intake.is_held = True
            return
        try:
            due = self.stream.tick(now_ns)
        except StoreError as error:
            self.broken(error)
            return
        self.promise(due.effects)
        for entry in due.entries:
            self.proposals.propose(entry)
        if self.failure is None:
            self.note(self.stream)

    def fetched(self, now_ns: int) -> None:
        """Retry what waited for a block: the block is in memory now."""
        self.resume(now_ns)
        self.open_lane()
        self._waking.add_all()

    def resume(self, now_ns: int) -> None:
        """Continue what waited for a block or an entry in flight."""
        if self._intake.is_held and not self.proposals.are_in_flight:
            self._intake.is_held = False
            self._tick_stream(now_ns)
        self._intake.resume(now_ns)
        if self._stream_sources is not None:
            self._stream_sources.resume(now_ns)

    # -- roles of a replica

    def lead(self, unfinished: tuple[Purge, ...], now_ns: int) -> None:
        """Start leading: take messages, and continue the purges that are not finished."""
        self._intake.is_open = True
        if unfinished:
            self.chores.roll_up(unfinished, ())
        self.chores.sweep(now_ns)
        if self._stream_sources is not None:
            self._stream_sources.follow(now_ns)
        self.note(self.stream)

    def step_down(self) -> None:
        """Stop leading: end the waiting pull requests, drop what is not applied."""
        self._intake.stop()
        self.chores.forget()
        if self._stream_sources is not None:
            self._stream_sources.close()
        for consumer in self.consumers.values():
            self._now.extend(consumer.closing(Closing.STEP_DOWN))

    # -- changes from outside

    def report_purged(
        self, subject: str | None, removed: Removed, now_ns: int, *, is_single: bool = False
    ) -> None:
        """Report messages removed by a purge or a rollup to the consumers.

        With `is_single` exactly one message was removed; it counts as deleted, as in the reference.
        """
        if is_single:
            self.report_removed(removed)
            removed = NOTHING_REMOVED
        for consumer in list(self.consumers.values()):
            self._take(consumer, consumer.purged(subject, removed.seqs, now_ns))
            self._waking.add(consumer.name)

    def limit_lane(self, room: int, *, is_watched: bool) -> None:
        """Set the bytes that the lane may still store, and whether the account must know the
        stream's size after every message."""
        self.lanes.limit(room, is_watched=is_watched)
        self.open_lane()

    def open_lane(self) -> None:
        """Let the lane take what the configuration allows; close it while messages must wait."""
        is_bound = self._intake or self.cannot_store or self.stream.store.is_over
        is_free = self.proposals.is_local and not (is_bound or self._is_closed)
        self.lanes.configure(is_free=is_free, is_alone=self._is_alone)

    @property
    def _is_alone(self) -> bool:
        """Whether no consumer and no source needs to know of each message."""
        return not (self.consumers or self._stream_sources)

    def config_changed(self, now_ns: int) -> None:
        """Apply a new stream configuration to the lane and the consumers."""
        self.open_lane()
        by_interest = self.stream.cfg.retention is not Retention.LIMITS
        for consumer in self.consumers.values():
            consumer.retention_changed(by_interest=by_interest)
        self.note(self.stream)
        self._waking.add_all()
        if self.stream.cfg.retention is Retention.INTEREST:
            self.chores.sweep(now_ns)

    def await_state(self, consumer: Consumer) -> None:
        """Make effects that are held from now on wait for this consumer's state, too."""
        self._commits.unsynced.add(consumer.name)

    def deleted(self) -> None:
        """Release and refuse everything that waits: the stream is deleted, and that is durable."""
        self._is_closed = self._is_deleted = True
        self.proposals.drop_all()
        self._now[:0] = self._commits.end_by_deletion(self.lanes.lane)
        self._intake.refuse_all(refusals.STREAM_NOT_FOUND)

    def close(self) -> None:
        """Serve nothing from now on; `let_go` closes the files."""
        self._is_closed = True

    def let_go(self) -> None:
        """Write pending changes and close the files. Blocks."""
        self.registry.close(is_deleted=self._is_deleted)
        with contextlib.suppress(StoreError):
            self.stream.store.close()
            if self.positions is not None and self.failure is None:
                self.positions.keep_now(self.stream)
        if self.positions is not None:
            self.positions.close()
        if self.files is not None:
            self.files.close()

    # -- durability

    @property
    def wants_commit(self) -> bool:
        """Whether effects wait for a commit, or changes should be durable soon."""
        lane = self.lanes.lane
        return bool(
            self._commits.held or self._commits.unsynced or (lane is not None and lane.waiting)
        ) or (self.failure is None and self.stream.store.sync_wanted)

    def commit(self, *, in_place: bool = False) -> list[Commit]:
        """Return the work that makes everything done so far durable, for `advance`; may be empty.
        With `in_place` the caller may wait for the disk: an append is done here."""
        return self._commits.begin(self.lanes.lane, in_place=in_place)

    def advance(self, commits: list[Commit], failure: Exception | None) -> None:
        """Take back work that has run; release the effects that waited for it unless it failed."""
        self._now.extend(self._commits.end(commits, failure, self.lanes.lane))

    @property
    def disk_full(self) -> DiskFull | None:
        """Why nothing can be written for now; None while the disk has space."""
        return self._commits.full

    def next_state_creation(self) -> Commit | None:
        """Return the work that creates one consumer's state files; None if none needs it now."""
        return self._commits.next_state_creation()

    def set_disk_full(self, full: DiskFull | None) -> None:
        """Record that the disk is full, or (None) that it has space again."""
        self._commits.full = full
        self.open_lane()

    def flush_consumers(self) -> None:
        """Write the consumers' pending state, without a sync."""
        self._commits.flush_consumers()
