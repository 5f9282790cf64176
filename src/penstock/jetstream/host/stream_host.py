"""One stream with its consumers: stored messages wake consumers, acks may remove messages.

Invariant: a host owns its stream and consumers; all calls to them go through it or are reported to
it (`touched`, `acked`). Their effects collect in two lists: `now` may leave at once, `held` may
leave when everything done so far is durable (`commits`). The stream driver is the caller. It
performs the effects, runs the syncs (`begin_commit`, `end_commit`), calls `turn` and `flow` when
the host may have something to deliver, and `tick` when a deadline is due.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.api import refusals
from penstock.api.stream_config import Retention
from penstock.base.effects import Fetch, Send
from penstock.jetstream.consumers.consumer import Consumer
from penstock.jetstream.deadline_queue import DeadlineQueue
from penstock.jetstream.host import interest_retention
from penstock.jetstream.host.chores import Chores
from penstock.jetstream.host.pending_replies import PendingReplies
from penstock.jetstream.host.publish_queue import TOO_MANY_HEADER, PublishQueue
from penstock.jetstream.host.replicator import LocalReplicator
from penstock.jetstream.host.wakeups import Wakeups
from penstock.jetstream.streams.entries import (
    ROLLUP_SUBJECT,
    Answer,
    Applied,
    NotLoaded,
    Publish,
    Remove,
)
from penstock.jetstream.streams.lanes.lane_policy import configure_lane, removed_one_by_one
from penstock.jetstream.streams.pubacks import PubAcks
from penstock.jetstream.streams.stream import Stream
from penstock.store.contract import NOTHING_REMOVED
from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.api.refusals import ApiError
    from penstock.base.effects import Effect
    from penstock.base.message import Inbound
    from penstock.jetstream.host.asset_files import ConsumerFiles, StreamFiles
    from penstock.jetstream.host.pending_replies import Commit
    from penstock.jetstream.host.replicator import Proposal, Replicator
    from penstock.jetstream.sources.stream_sources import StreamSources
    from penstock.jetstream.streams.entries import Entry, PlanNote
    from penstock.jetstream.streams.lanes.publish_lane import StreamLane
    from penstock.store.contract import Range, Removed
    from penstock.store.errors import DiskFull


class StreamHost:
    """A stream, its consumers, and the effects that wait for their disk."""

    def __init__(self, stream: Stream, files: StreamFiles | None, *, incarnation: str = "") -> None:
        self.stream = stream
        self.files = files
        self.incarnation = incarnation
        """Identifies this stream; unlike that of any other stream, even of the same name."""
        self.consumers: dict[str, Consumer] = {}
        self._listed: list[str] = []  # consumers that API requests may name
        self._is_listed_sorted = True
        self.consumer_files: dict[str, ConsumerFiles] = {}
        self.now: list[Effect] = []
        self.is_closed = False
        self.is_deleted = False
        self.deadline_queue: DeadlineQueue[Stream | Consumer | StreamSources] = DeadlineQueue()
        self.replicator: Replicator[Entry] = LocalReplicator(self._apply)
        self.lane: StreamLane | None = None
        self.is_watched = False
        """Whether the account must know the stream's size after every message."""
        self.stream_sources: StreamSources | None = None
        self.positions = None if files is None else files.positions()
        self.commits = PendingReplies(stream, self.positions, self.consumer_files)
        self.chores = Chores(self)
        """Work that was started and continues in later turns."""
        self._intake = PublishQueue()
        self._waking = Wakeups(self.consumers)

    @property
    def name(self) -> str:
        return self.stream.cfg.name

    @property
    def held(self) -> list[Effect]:
        """Effects that may leave when everything done so far is durable."""
        return self.commits.held

    @property
    def failure(self) -> Exception | None:
        """Why nothing can be written any more; None while the disk works."""
        return self.commits.failure

    @property
    def cannot_store(self) -> bool:
        """Whether nothing can be stored, now or ever."""
        return self.failure is not None or self.commits.full is not None

    # -- messages in

    def publish(self, msg: Inbound, now_ns: int, note: PlanNote | None = None) -> None:
        """Plan and store a message, or queue or refuse it; the effects go to `now` and `held`."""
        if self._intake:
            if not self._intake.add(msg):
                self._refuse(msg, refusals.STREAM_TOO_MANY_REQUESTS, TOO_MANY_HEADER)
            return
        self.collect_lane_results()
        self._publish(msg, now_ns, note)

    def _publish(self, msg: Inbound, now_ns: int, note: PlanNote | None = None) -> bool:
        hindrance = self.failure or self.commits.full
        if hindrance is not None:
            self._refuse(msg, refusals.STREAM_STORE_FAILED(err=str(hindrance)))
            return True
        try:
            planned = self.stream.plan(msg, now_ns)
            if note is not None:
                note(planned)
            if isinstance(planned, Answer):
                self.commits.promise(planned.effects)
            elif isinstance(planned, NotLoaded):
                self._intake.put_back(msg)
                self.open_lane()  # the lane stays closed while the queue is not empty
                self.now.append(Fetch(planned.cold))
                return False
            else:
                self.replicator.propose(planned)
        except StoreError as error:
            self.broken(error)
            self._refuse(msg, refusals.STREAM_STORE_FAILED(err=str(error)))
        return True

    def _refuse(self, msg: Inbound, why: ApiError, header: bytes = b"") -> None:
        if msg.reply:
            self.now.append(Send(msg.reply, PubAcks(self.name).refused(why), header))

    def collect_lane_results(self) -> None:
        """Take over what the publish lane did since the last call."""
        if self.lane is None:
            return
        taken, gone = self.lane.take_results()
        if taken:
            self.stream.lane_appended()
            self._waking.taken()
            if self.stream_sources is not None:
                self.stream_sources.collect_results()
        if gone and self.consumers:
            self.report_removed(removed_one_by_one(gone))

    def broken(self, error: StoreError) -> None:
        """Record that the store can no longer be written."""
        self.commits.fail(error, self.lane)

    def _apply(self, entry: Entry, proposal: Proposal | None) -> None:
        applied = self.stream.apply(entry)
        if proposal is not None:  # it also reports what the entry removed
            proposal.applied(applied)
            return
        if type(entry) is Publish and entry.special is not None and entry.special.rollup:
            # Consumers see messages removed by a rollup as purged.
            subject = entry.subject if entry.special.rollup == ROLLUP_SUBJECT else None
            if applied.by_limit.msgs:
                self.report_removed(applied.by_limit)
            is_single = applied.rolled_up.msgs == 1 and not applied.rest
            self.report_purged(subject, applied.rolled_up, entry.ts_ns, is_single=is_single)
            applied = applied._replace(removed=NOTHING_REMOVED)
        if applied.rest:  # the reply follows the last slice
            self.chores.roll_up(applied.rest, applied.effects)
            applied = applied._replace(effects=())
        self._applied(applied)

    def _applied(self, applied: Applied) -> None:
        self.commits.promise(applied.effects)
        if applied.is_bulk:
            self._waking.taken()
        if applied.stored:
            self._waking.stored(applied.stored)
        if applied.removed.msgs and self.consumers:
            self.report_removed(applied.removed)

    def propose(self, entry: Entry) -> None:
        """Apply a change that an API handler planned."""
        self.collect_lane_results()
        self.replicator.propose(entry)

    def report_removed(self, removed: Removed) -> None:
        """Report messages removed by limits or deletions to the consumers."""
        now_ns = self.stream.last_ts_ns
        for consumer in list(self.consumers.values()):
            self._take(consumer, consumer.removed(removed.seqs, now_ns))

    # -- consumers

    def add_consumer(self, consumer: Consumer, files: ConsumerFiles | None) -> None:
        self.consumers[consumer.name] = consumer
        if not consumer.cfg.direct:
            self._listed.append(consumer.name)
            self._is_listed_sorted = False
        if files is not None:
            self.consumer_files[consumer.name] = files
        self._waking.add(consumer.name)
        self.open_lane()
        self.note(consumer)

    def drop_consumer(self, name: str, effects: Iterable[Effect], now_ns: int) -> None:
        """Remove a consumer; the caller removes its files."""
        consumer = self.consumers.pop(name)
        if not consumer.cfg.direct:
            self._listed.remove(name)
        self.deadline_queue.forget(consumer)
        self._waking.forget(name)
        self.commits.unsynced.discard(name)
        self.open_lane()
        self.now.extend(effects)
        if self.stream.cfg.retention is Retention.INTEREST:
            self.sweep_unwanted(now_ns)

    def touched(self, consumer: Consumer, effects: Iterable[Effect]) -> None:
        """Take the effects of a call made directly on a consumer, and wake the consumer."""
        self._take(consumer, effects)
        self._waking.add(consumer.name)

    def _take(self, consumer: Consumer, effects: Iterable[Effect]) -> None:
        self.now.extend(effects)
        self.note(consumer)
        if consumer.busy:
            self._waking.add(consumer.name)
        acked = consumer.take_acked()
        if acked:
            self._remove_acked(acked)

    def note(self, machine: Stream | Consumer | StreamSources) -> None:
        if isinstance(machine, Consumer):
            self.commits.changed.add(machine.name)
        due_ns = machine.next_deadline_ns()
        self.deadline_queue.note(machine, due_ns)
        if machine is self.stream:
            self._tend_lane(due_ns)

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
            self.held.extend(effects)
            self.commits.unsynced.add(consumer.name)
        else:
            self.now.extend(effects)
        self.note(consumer)
        self._waking.add(consumer.name)
        if acked:
            self._remove_acked(acked)

    # -- retention by interest

    def wants(self, subject: str) -> bool:
        """Whether a consumer is interested in the subject; an unserved consumer may be."""
        is_wanted = any(consumer.wants(subject) for consumer in self.consumers.values())
        return is_wanted or interest_retention.has_unserved(self.files)

    def _remove_acked(self, acked: tuple[Range, ...]) -> None:
        if self.stream.cfg.retention is Retention.LIMITS:
            return
        if sum(last - first + 1 for first, last in acked) > interest_retention.SWEEP_LOOKS:
            self.chores.queue_acked(acked)
            return
        gone = interest_retention.acked_by_all(self.stream.store, self.consumers.values(), acked)
        self.take_out(gone, self.stream.last_ts_ns)

    def take_out(self, seqs: tuple[int, ...], now_ns: int) -> None:
        """Remove messages that no consumer needs; if that fails, the next start removes them."""
        if not seqs or self.failure is not None or interest_retention.has_unserved(self.files):
            return  # an unserved consumer may need them
        try:
            self.replicator.propose(Remove(now_ns, seqs))
        except StoreError as error:
            self.broken(error)
        self.note(self.stream)

    def sweep_unwanted(self, now_ns: int) -> None:
        """Remove what no consumer needs any more: one slice now, the rest as a chore."""
        self.chores.sweep(now_ns)

    # -- turns

    def turn(self, now_ns: int) -> None:
        """Report newly visible messages to the consumers, and let them deliver."""
        if self.is_closed:
            return
        self.collect_lane_results()
        self._waking.announce(self.stream.store, now_ns)
        while self._waking.is_busy:
            is_busy = False
            for consumer in self._waking.take_ready():
                self._take(consumer, consumer.wake(now_ns))
                is_busy |= consumer.busy
            if is_busy:
                return
        if not self.stream.is_timeless:
            self.note(self.stream)

    @property
    def waits_for_sync(self) -> bool:
        """Whether nothing can be delivered before the next sync: only the lane stored something."""
        is_idle = self._waking.is_idle and not (self.now or self.stream_sources)
        return is_idle and self.stream.store.sync_wanted

    def flow(self, now_ns: int) -> bool:
        """Let one consumer deliver straight into outboxes; return False if no consumer may.

        After `turn`, the caller repeats this until it returns False. Before each call, every effect
        in `now` must have left: direct deliveries must not overtake effects decided earlier.
        """
        consumer = None if self.is_closed else self._waking.take_direct()
        if consumer is None:
            return False
        self._take(consumer, consumer.wake(now_ns, direct=True))
        return True

    @property
    def is_busy(self) -> bool:
        """Whether `turn` stopped at a bound and has more to do at once."""
        return self._waking.is_busy

    def tick(self, now_ns: int) -> list[Consumer]:
        """Handle the deadlines that are due; return consumers that were inactive too long."""
        abandoned = []
        for machine in self.deadline_queue.due(now_ns):
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
        try:
            due = self.stream.tick(now_ns)
            self.commits.promise(due.effects)
            for entry in due.entries:
                self.replicator.propose(entry)
        except StoreError as error:
            self.broken(error)
            return
        self.note(self.stream)

    def fetched(self, now_ns: int) -> None:
        """Retry what waited for a block: the block is in memory now."""
        while self._intake and self._publish(self._intake.take(), now_ns):
            continue
        if self.stream_sources is not None:
            self.stream_sources.resume(now_ns)
        self.open_lane()
        self._waking.add_all()

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

    def open_lane(self) -> None:
        """Let the lane take what the configuration allows; close it while messages must wait."""
        if self.lane is not None:
            is_bound = self._intake or self.cannot_store or self.stream.store.is_over
            is_free = not (is_bound or self.is_closed)
            configure_lane(self.lane, self.stream.cfg, is_free=is_free)
            self._tend_lane(self.stream.next_deadline_ns())

    def _tend_lane(self, due_ns: int | None) -> None:
        """Let the lane run without Python if no consumer, limit or source needs its messages at
        once, and none of them expires before the deadline that is already set."""
        if self.lane is not None:
            age_ns, last_ns = self.stream.cfg.max_age, self.stream.last_ts_ns
            is_timed = not age_ns or (due_ns is not None and due_ns <= last_ns + age_ns)
            is_alone = not (self.consumers or self.is_watched or self.stream_sources)
            self.lane.set_unattended(is_alone and is_timed)

    def config_changed(self, now_ns: int) -> None:
        """Apply a new stream configuration to the lane and the consumers."""
        self.open_lane()
        by_interest = self.stream.cfg.retention is not Retention.LIMITS
        for consumer in self.consumers.values():
            consumer.retention_changed(by_interest=by_interest)
        self.note(self.stream)
        self._waking.add_all()
        if self.stream.cfg.retention is Retention.INTEREST:
            self.sweep_unwanted(now_ns)

    def filters_changed(self, now_ns: int) -> None:
        """Remove messages that are no longer needed after a consumer changed its filters."""
        if self.stream.cfg.retention is Retention.INTEREST:
            self.sweep_unwanted(now_ns)

    def await_state(self, consumer: Consumer) -> None:
        """Make effects that are held from now on wait for this consumer's state, too."""
        self.commits.unsynced.add(consumer.name)

    @property
    def listed_consumers(self) -> list[str]:
        """Return the sorted names of consumers that API requests may name; consumers that feed
        mirrors and sources are left out."""
        if not self._is_listed_sorted:
            self._listed.sort()
            self._is_listed_sorted = True
        return self._listed.copy()

    @property
    def num_listed(self) -> int:
        """Return how many consumers API requests may name."""
        return len(self._listed)

    def deleted(self) -> None:
        """Release and refuse everything that waits: the stream is deleted, and that is durable."""
        self.is_closed = self.is_deleted = True
        self.now[:0] = self.commits.end_by_deletion(self.lane)
        while self._intake:
            self._refuse(self._intake.take(), refusals.STREAM_NOT_FOUND)

    def let_go(self) -> None:
        """Write pending changes and close the files. Blocks."""
        for files in self.consumer_files.values():
            with contextlib.suppress(StoreError):
                (files.abandon if self.is_deleted else files.close)()
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
        lane = self.lane
        return bool(self.held or self.commits.unsynced or (lane is not None and lane.waiting)) or (
            self.failure is None and self.stream.store.sync_wanted
        )

    def begin_commit(self) -> list[Commit]:
        """Return the work that makes `held` durable; `end_commit` releases the effects."""
        return self.commits.begin(self.lane)

    def end_commit(self, commits: list[Commit], failure: Exception | None) -> None:
        """Take back work that has run; move the effects that waited to `now` unless it failed."""
        self.now.extend(self.commits.end(commits, failure, self.lane))

    def set_disk_full(self, full: DiskFull | None) -> None:
        """Record that the disk is full, or (None) that it has space again."""
        self.commits.full = full
        self.open_lane()

    def flush_consumers(self) -> None:
        """Write the consumers' pending state, without a sync."""
        self.commits.flush_consumers()
