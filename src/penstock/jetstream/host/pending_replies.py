"""Effects of a host, such as publish acks, that may leave only after a sync.

`held` collects effects. `begin` returns the work that makes everything done so far durable, and
takes all held effects along; `end` returns the effects that may leave. Invariants: no effect leaves
before a sync has returned that began after the effect was added; after a failed sync, none of the
waiting effects ever leaves. A full disk is not a failure: the server runs the same work again until
there is space. `StreamHost` calls this on the event loop; the work runs on disk threads.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.jetstream.host.lazy_consumer_log import StateFileCreation
from penstock.store.disk_jobs import LONG_WRITE_BYTES
from penstock.store.errors import DiskFull, StoreError
from penstock.store.indexed_store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.state.state_files import ConsumerSync
    from penstock.jetstream.host.asset_files import ConsumerFiles
    from penstock.jetstream.host.lazy_consumer_log import LazyConsumerLog
    from penstock.jetstream.sources.source_positions import Positions
    from penstock.jetstream.sources.source_reader import Listen
    from penstock.jetstream.streams.lanes.publish_lane import StreamLane
    from penstock.jetstream.streams.stream import Stream
    from penstock.store.contract import Store, Work


class Ready(NamedTuple):
    """What the driver performs: changes of source subscriptions, then effects, in order."""

    wires: Sequence[Listen]
    effects: Sequence[Effect]


NOTHING_READY: Final = Ready((), ())


class Commit(NamedTuple):
    """One piece of work of a group commit."""

    work: Work
    on_done: Callable[[Exception | None], None]
    """Called after the work has run, with its failure if there was one."""
    is_long: bool = False
    """The work may take long even where syncs are fast: the event loop must never wait for it."""


def _append_now(store: Store) -> bool:
    """Commit what only has to be appended; return False if something is left to do."""
    appender = store.appender if isinstance(store, IndexedStore) else None
    if appender is None or appender.unwritten_bytes > LONG_WRITE_BYTES:
        return False
    return appender.commit()


class PendingReplies:
    """The effects of one host that wait for its disk, and the work they wait for."""

    def __init__(
        self,
        stream: Stream,
        positions: Positions | None,
        consumer_files: dict[str, ConsumerFiles],
    ) -> None:
        self._stream = stream
        self._positions = positions
        self._consumer_files = consumer_files
        self.held: list[Effect] = []
        self.failure: Exception | None = None
        """Why nothing can be written any more; never cleared."""
        self.full: DiskFull | None = None
        """Nothing can be written until the disk has space."""
        self.unsynced: set[str] = set()
        """Consumers with state changes that a client waits for."""
        self.changed: set[str] = set()
        """Consumers with state changes that may not be written yet."""
        self._unmade: dict[str, None] = {}  # consumers whose state needs files
        self._releasing: list[Effect] = []
        self._awaited: dict[str, int] = {}  # consumer -> the change that must be durable

    def promise(self, effects: Iterable[Effect]) -> None:
        """Hold effects until everything stored so far is durable; drop them after a failure."""
        if self.failure is None:
            self.held.extend(effects)

    def begin(self, lane: StreamLane | None, *, in_place: bool) -> list[Commit]:
        """Return the work that makes `held` durable; take its effects, which `end` returns.

        With `in_place` the caller may wait for the disk: an append to the stream is done here.
        """
        commits = [] if self.failure is not None else self._of_stream(in_place=in_place)
        try:
            self._add_consumers(commits)
        except DiskFull as full:
            self.full = full
            return commits
        except StoreError as failure:
            self.fail(failure, lane)
            return commits
        self._releasing, self.held = self.held, []
        if lane is not None:
            lane.commit()
        return commits

    def _of_stream(self, *, in_place: bool) -> list[Commit]:
        commits: list[Commit] = []
        store = self._stream.store
        if not (in_place and _append_now(store)):
            # If the store does not sync now, write at least: a killed process loses nothing then.
            work = store.pending_sync(write_only=not store.sync_wanted)
            if work is not None:
                commits.append(Commit(work, partial(store.synced, work), work.is_long))
        positions = self._positions
        keep = None if positions is None else positions.pending_sync(self._stream)
        if positions is not None and keep is not None:  # after the messages it refers to
            commits.append(Commit(keep, partial(positions.synced, keep)))
        return commits

    def _add_consumers(self, commits: list[Commit]) -> None:
        for name in list(self.unsynced):
            files = self._consumer_files.get(name)
            if files is not None:
                sync = files.state.pending_sync()
                if sync is not None:
                    is_long = isinstance(sync, StateFileCreation)
                    commits.append(Commit(sync, partial(files.state.synced, sync), is_long))
                self._awaited[name] = files.state.recorded_seq
            self.unsynced.discard(name)

    def end(
        self, commits: list[Commit], failure: Exception | None, lane: StreamLane | None
    ) -> list[Effect]:
        """Take back work that has run; return the effects that waited for it and may leave."""
        for commit in commits:
            commit.on_done(failure)
        if failure is not None:
            self.fail(failure, lane)
            return []
        if lane is not None:
            lane.release()
        released, self._releasing = self._releasing, []
        awaited, self._awaited = self._awaited, {}
        late = [name for name, seq in awaited.items() if not self._is_durable(name, seq)]
        if late:  # a state that is written as a whole takes two syncs
            self.unsynced.update(late)
            self.held[:0] = released
            return []
        return released

    def end_by_deletion(self, lane: StreamLane | None) -> list[Effect]:
        """Return all waiting effects: the stream is deleted, and the deletion is durable."""
        released = [*self._releasing, *self.held]
        self._releasing, self.held = [], []
        self.unsynced.clear()
        self._awaited.clear()
        if lane is not None:
            lane.commit()
            lane.release()
        return released

    def _is_durable(self, consumer: str, seq: int) -> bool:
        files = self._consumer_files.get(consumer)
        return files is None or files.state.durable_seq >= seq

    def fail(self, failure: Exception, lane: StreamLane | None) -> None:
        """Record that the disk failed; drop the waiting effects: no client gets a success."""
        self.failure = self.failure or failure
        self._releasing, self.held = [], []
        self.unsynced.clear()
        self._awaited.clear()
        if lane is not None:
            lane.close()
            lane.forget()

    def flush_consumers(self) -> None:
        """Write the consumers' pending state without a sync; then call `next_state_creation`."""
        while self.changed:
            name = self.changed.pop()
            files = self._consumer_files.get(name)
            if files is None:
                continue
            try:
                files.state.flush()
            except StoreError:
                self.changed.add(name)
                raise
            if files.state.needs_files:
                self._unmade[name] = None

    def next_state_creation(self) -> Commit | None:
        """Return the work that creates one consumer's state files; None if none needs it now."""
        while self._unmade:
            name = next(iter(self._unmade))
            del self._unmade[name]
            files = self._consumer_files.get(name)
            if files is None or not files.state.needs_files:
                continue
            sync = files.state.pending_sync()
            if sync is not None:
                return Commit(sync, partial(self._made, name, files.state, sync), is_long=True)
            self.changed.add(name)  # other work uses its files: the next flush tries again
        return None

    def _made(
        self,
        name: str,
        state: LazyConsumerLog,
        sync: ConsumerSync | StateFileCreation,
        failure: Exception | None,
    ) -> None:
        state.synced(sync, failure)
        if failure is not None:
            self.changed.add(name)
