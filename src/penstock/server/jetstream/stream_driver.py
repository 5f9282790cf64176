"""Drives one stream host: performs its effects, runs its syncs, and passes on its deadlines.

A driver runs once per turn if its host changed in the turn (`mark`), whatever the number of
messages. Everything here runs on the event loop, except `Work.run`. Invariant: at most one sync of
a host runs at a time, so that one commit covers all changes that arrive meanwhile.
`JetStreamRuntime` runs the drivers at the end of a turn; `AccountRuntime` creates and closes them.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from penstock.base.effects import Begin, Fetch
from penstock.base.message import Inbound
from penstock.broker.router import LaneListener
from penstock.jetstream.host.pending_replies import NOTHING_READY, Commit
from penstock.jetstream.streams.lanes.lane_policy import make_lane
from penstock.server.jetstream.group_commit import run_here
from penstock.server.jetstream.traced_publish import trace_publish
from penstock.server.net.turn_listener import NOTABLE_NS
from penstock.server.server_log import log
from penstock.store.errors import DiskFull, StoreError
from penstock.store.filestore import FileStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.host.pending_replies import Ready
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.net.client_link import ClientLink
    from penstock.server.net.turn_listener import CommitPace
    from penstock.server.system.message_trace import MessageTrace
    from penstock.store.contract import Cold, Work


SPACE_RETRY_S: Final = 0.5
"""Delay before a commit is retried on a full disk."""
FLOW_BUDGET_NS: Final = 3_000_000
"""How long the consumers of a stream deliver before other streams and clients are served."""
READ_RETRY_S: Final = 0.5
"""Delay before an unreadable block is read again."""


class CommitGroup:
    """The work of one commit, run in order."""

    __slots__ = ("_commits", "span_ns")

    def __init__(self, commits: list[Commit]) -> None:
        self._commits = commits
        self.span_ns = 0

    def run(self) -> None:
        began_ns = time.monotonic_ns()
        for commit in self._commits:
            commit.work.run()
        self.span_ns = time.monotonic_ns() - began_ns


class FileClosure:
    """Closes the files of a deleted stream."""

    __slots__ = ("_host",)

    def __init__(self, host: StreamHost) -> None:
        self._host = host

    def run(self) -> None:
        self._host.let_go()


class StreamDriver(LaneListener):
    """Runs one stream host inside the server."""

    def __init__(self, host: StreamHost, account: AccountRuntime) -> None:
        self.host = host
        self._account = account
        self._runtime = account.runtime
        store = host.stream.store
        self._syncs = not isinstance(store, FileStore) or store.appender.syncs
        """False: commits of the stream usually only write, and it syncs from time to time."""
        self._syncing = False
        self._compacting = False
        self._making = False
        self._is_leaving = False
        self._is_frozen = False
        self._is_waiting = False
        self._is_told = False
        self._stuck: list[Commit] | None = None
        self._failed_frozen: tuple[list[Commit], Exception] | None = None
        """A sync that failed while the stream was being deleted."""
        self._fetching: dict[Cold, list[Callable[[], None]]] = {}

    def open_lane(self) -> None:
        """Create the publish lane of the stream, if its store supports one."""
        host = self.host
        if not (self._runtime.has_lanes and host.proposals.is_local):
            return
        lane = make_lane(
            host.stream,
            self._runtime.service.router,
            self._account.interest,
            listener=self,
            domain=self._runtime.options.domain,
        )
        host.lanes.lane = lane
        self.limits_changed()

    def limits_changed(self) -> None:
        """Apply the storage limits of the account and the server to the lane."""
        host, assets = self.host, self._account.assets
        room = assets.room_left(host.stream.cfg.storage)
        host.limit_lane(room, is_watched=assets.is_limited or not self._runtime.is_ample)

    def received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        """Take a message published on one of the stream's subjects."""
        msg = Inbound(subject, reply, header, payload)
        if self.host.is_closed:  # the stream was deleted in this turn, after the message was routed
            self._account.reply_no_responders(msg, source)
            return
        self.host.publish(msg, self._runtime.now_ns())
        self.mark()

    def traced(
        self,
        trace: MessageTrace,
        _to: str | None,
        subject: str,
        reply: str,
        header: bytes,
        payload: bytes,
        _source: ClientLink | None,
    ) -> None:
        """Take a traced message published on one of the stream's subjects."""
        msg = Inbound(subject, reply, header, payload)
        trace_publish(trace, self.host, self._account.name, msg, self._runtime.now_ns())
        self.mark()

    def mark(self) -> None:
        """Schedule a run of the host: it changed."""
        self._runtime.dirty[self] = None
        self._account.assets.touch(self.host)

    lane_changed = mark

    def freeze(self, *, frozen: bool) -> None:
        """Suspend work on the files, because the stream is about to be deleted; or resume it."""
        self._is_frozen = frozen
        if not frozen:
            if self._failed_frozen is not None:
                self._syncing = False
                self._committed(*self._failed_frozen)
                self._failed_frozen = None
            self.mark()

    def run(self) -> None:
        """Perform the host's effects, do a slice of its chores, and commit."""
        host = self.host
        if host.is_closed:
            self._release()
            return
        self._runtime.upkeep.want(self)
        self._runtime.look_at_space(self._runtime.now_ns())
        if self._syncing or not host.waits_for_sync:
            self._turn()
        if host.chores.are_left:
            host.chores.go_on(self._runtime.now_ns())
        if not (self._syncing or self._is_frozen):
            self._commit()
        if host.is_busy:
            self._runtime.resume_soon(self)
        if self._account.assets.is_limited:
            self.recount()
        else:
            self._account.assets.touch(host)
        self._runtime.deadline_queue.note(self, host.next_deadline_ns)

    def recount(self) -> None:
        """Update the account's usage, and the bytes that the lane may still store."""
        host, assets = self.host, self._account.assets
        assets.recount(host)
        host.lanes.set_room(assets.room_left(host.stream.cfg.storage))

    def _turn(self) -> None:
        """Let consumers deliver: first through effects, then straight into outboxes."""
        self._send_lane_acks()
        until_ns = time.monotonic_ns() + FLOW_BUDGET_NS
        for ready in self.host.ready(self._runtime.now_ns()):
            if ready is NOTHING_READY:
                if time.monotonic_ns() >= until_ns:
                    break
                continue
            self._perform(ready)

    def _release(self) -> None:
        """Perform what the host decided already."""
        self._send_lane_acks()
        while (ready := self.host.remaining()) is not None:
            self._perform(ready)

    def _send_lane_acks(self) -> None:
        lane = self.host.lane
        if lane is not None:
            lane.send_acks()

    def _perform(self, ready: Ready) -> None:
        if ready.wires:
            self._account.copying.tune(ready.wires, self.host)
        if ready.effects:
            self._account.performer.perform(ready.effects)
            for effect in ready.effects:
                # `base` cannot import types of the layers above it, so these effects hold plain
                # objects.
                if isinstance(effect, Fetch):
                    self.fetch(effect.cold)  # type: ignore[arg-type]
                elif isinstance(effect, Begin):
                    self._account.begin(effect.transfer)  # type: ignore[arg-type]

    def tick(self) -> None:
        """Handle the host's deadlines that are due."""
        host = self.host
        if host.is_closed:
            return
        now_ns = self._runtime.now_ns()
        for consumer in host.tick(now_ns):
            self._account.delete_abandoned(host, consumer)
        self.mark()

    # -- durability

    def _commit(self) -> None:
        host = self.host
        committer = self._runtime.committer
        appends = committer.pace if self._syncs else committer.write_pace
        in_place, began_ns = appends.is_quick, time.monotonic_ns()
        visible_seq = host.stream.store.visible_seq
        commits = host.commit(in_place=in_place)
        span_ns = time.monotonic_ns() - began_ns
        if in_place and span_ns >= NOTABLE_NS:
            appends.took(span_ns)
        if host.disk_full is not None and not self._is_waiting:
            self._wait_for_space(None)
        if not commits and host.stream.store.visible_seq == visible_seq:
            host.advance(commits, None)
            self._release()
        elif not commits:
            self._committed(commits, None)  # the append was done in place: consumers wake
        elif self._pace_of(commits).is_quick and not any(each.is_long for each in commits):
            together = CommitGroup(commits)
            failure = run_here(together)
            self._pace_of(commits).took(together.span_ns)
            self._committed(commits, failure)
        else:
            self._sync(commits)

    def _pace_of(self, commits: list[Commit]) -> CommitPace:
        committer = self._runtime.committer
        syncs = any(not getattr(commit.work, "write_only", False) for commit in commits)
        return committer.pace if syncs else committer.write_pace

    def _sync(self, commits: list[Commit]) -> None:
        self._syncing = True
        together = CommitGroup(commits)
        self._runtime.committer.run(
            together, lambda failure: self._synced(commits, together, failure)
        )

    def let_go(self) -> None:
        """Close the files of a deleted stream as soon as no work uses them."""
        self._is_leaving = True
        if self._failed_frozen is not None:
            self._syncing = False
            self.host.advance(*self._failed_frozen)
            self._failed_frozen = None
        self._leave()

    def _leave(self) -> None:
        is_out = self._syncing or self._compacting or self._making or self._fetching
        if self._is_leaving and not is_out:
            self._is_leaving = False
            self._runtime.disk_queue.run(self._account.name, FileClosure(self.host), lambda _: None)

    def _synced(
        self, commits: list[Commit], together: CommitGroup, failure: Exception | None
    ) -> None:
        self._pace_of(commits).took(together.span_ns)
        if self._is_frozen and failure is not None and not self.host.is_closed:
            # The deletion may have removed the files. Its outcome decides how to treat the failure.
            self._failed_frozen = (commits, failure)
            return
        self._syncing = False
        if self.host.is_closed:
            self.host.advance(commits, failure)
            self._release()
            self._leave()
            return
        self._committed(commits, failure)
        self.mark()
        self._runtime.run_and_flush()

    def _committed(self, commits: list[Commit], failure: Exception | None) -> None:
        host = self.host
        if isinstance(failure, DiskFull):
            host.set_disk_full(failure)
            self._wait_for_space(commits)
        else:
            host.advance(commits, failure)
            if failure is not None:
                self._failed(failure)
            elif host.disk_full is not None and not self._is_waiting:
                host.set_disk_full(None)
                self._is_told = False
                log.info("stream %s > %s has space again", self._account.name, host.name)
            if host.wants_commit:
                self._runtime.resume_soon(self)
        self._turn()

    def _failed(self, failure: Exception) -> None:
        log.error(
            "stream %s > %s can not be written any more: %s",
            self._account.name,
            self.host.name,
            failure,
        )

    # -- a full disk

    def _wait_for_space(self, commits: list[Commit] | None) -> None:
        """Retry the same work later: nothing is lost, and nothing is acked until it succeeds."""
        if not self._is_told:
            log.error(
                "stream %s > %s takes nothing until there is space: %s",
                self._account.name,
                self.host.name,
                self.host.disk_full,
            )
        self._is_told = self._is_waiting = True
        self._stuck = commits
        self._syncing = commits is not None
        self._runtime.loop.call_later(SPACE_RETRY_S, self._try_again)

    def _try_again(self) -> None:
        if not self._is_waiting:
            return
        self._is_waiting = False
        commits, self._stuck = self._stuck, None
        if commits is not None:
            self._sync(commits)
            return
        self.host.set_disk_full(None)
        self.mark()
        self._runtime.run_and_flush()

    def give_up(self) -> None:
        """Fail the commits that wait for space: the server stops, so they are never acked."""
        self._is_waiting = False
        self._fetching.clear()
        commits, self._stuck = self._stuck, None
        if commits is not None:
            self.host.advance(commits, self.host.disk_full)

    def sync_now(self) -> None:
        """Sync a lazy store: its sync interval has passed."""
        store = self.host.stream.store
        is_idle = self.host.failure is None and not self.host.is_closed
        if self._syncing or self._is_frozen or not is_idle:
            return
        work = store.pending_sync()
        if work is not None:
            self._sync([Commit(work, partial(store.synced, work))])

    def flush_consumers(self) -> None:
        """Write unconfirmed acks, so that a killed process does not lose them."""
        if self.host.is_closed or self._is_frozen:
            return
        self.recount()
        try:
            self.host.flush_consumers()
        except StoreError as error:
            log.error("state of consumers of %s can not be written: %s", self.host.name, error)
        self._make_states()

    def _make_states(self) -> None:
        """Create the consumers' state files, one consumer after the other."""
        if self._making or self._is_frozen or self.host.is_closed:
            return
        making = self.host.next_state_creation()
        if making is not None:
            self._making = True
            self._runtime.disk_queue.run(
                self._account.name, making.work, lambda failure: self._made(making, failure)
            )

    def _made(self, making: Commit, failure: Exception | None) -> None:
        self._making = False
        making.on_done(failure)
        if self.host.is_closed:
            self._leave()
            return
        if failure is not None:
            log.error("state of consumers of %s can not be written: %s", self.host.name, failure)
            self._runtime.upkeep.want(self)
        else:
            self._make_states()
        self.mark()  # acks may wait for it
        self._runtime.run_and_flush()

    def compact(self) -> None:
        """Start to compact a half-empty block; the stream is served meanwhile."""
        store = self.host.stream.store
        is_out = self._compacting or self._is_frozen or self.host.is_closed
        if not isinstance(store, FileStore) or is_out:
            return
        work = store.pending_compaction()
        if work is not None:
            self._compacting = True
            self._runtime.committer.run(work, lambda failure: self._compacted(store, work, failure))

    def _compacted(self, store: FileStore, work: Work, failure: Exception | None) -> None:
        self._compacting = False
        store.compacted(work, failure)
        if self.host.is_closed:
            self._leave()
            return
        if failure is not None:
            log.warning("compacting a block of stream %s failed: %s", self.host.name, failure)
        self.mark()
        self._runtime.run_and_flush()

    # -- cold blocks

    def fetch(self, cold: Cold, again: Callable[[], None] | None = None) -> None:
        """Read a block into memory, then notify the host and call `again`."""
        is_out = cold in self._fetching
        waiting = self._fetching.setdefault(cold, [])
        if again is not None:
            waiting.append(again)
        if not is_out:
            self._read(cold)

    def _read(self, cold: Cold) -> None:
        if self.host.is_closed:
            self._end_reads(cold)
        elif cold in self._fetching:  # give_up() empties the dict when the server stops
            work = self.host.stream.store.fetch(cold)
            self._runtime.committer.run(work, lambda failure: self._fetched(cold, work, failure))

    def _end_reads(self, cold: Cold) -> None:
        """Resume the requests that wait for the block: the stream is deleted."""
        for again in self._fetching.pop(cold, []):
            again()
        self._leave()
        self._runtime.run_and_flush()

    def _fetched(self, cold: Cold, work: Work, failure: Exception | None) -> None:
        if failure is not None and not self.host.is_closed:
            # Retry after a delay: callers that are resumed would request the block again at once.
            log.error("reading a block of stream %s failed: %s", self.host.name, failure)
            self._runtime.loop.call_later(READ_RETRY_S, self._read, cold)
            return
        if self.host.is_closed:
            self._end_reads(cold)
            return
        waiting = self._fetching.pop(cold, [])
        self.host.stream.store.fetched(work)
        self.host.fetched(self._runtime.now_ns())
        for again in waiting:
            again()
        self.mark()
        self._runtime.run_and_flush()
