"""What a host has decided and may not say yet: it waits for the disk.

`held` leaves when everything done before it is durable. `begin` gives out what must run for that
and takes along all that is held so far; `end` tells what may leave. Invariants: nothing leaves
before a sync that began after it was put here has returned; when one fails, nothing that waited
leaves, ever. A full disk is no failure: the same works are run again until there is space.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from penstock.jetstream.host.lazy_consumer_log import StateMaking
from penstock.store.errors import DiskFull, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.base.effects import Effect
    from penstock.jetstream.consumers.state.state_files import ConsumerSync
    from penstock.jetstream.host.asset_files import ConsumerFiles
    from penstock.jetstream.host.lazy_consumer_log import LateLog
    from penstock.jetstream.sources.source_positions import Positions
    from penstock.jetstream.streams.lanes.publish_lane import StreamLane
    from penstock.jetstream.streams.stream import Stream
    from penstock.store.contract import Work


class Commit(NamedTuple):
    """One piece of a group commit."""

    work: Work
    told: Callable[[Exception | None], None]
    """Called when it has run, with what made it fail."""
    is_long: bool = False
    """It may take long however quick syncs are: never to be waited for."""


class Commits:
    """The promises of one host, and what they wait for."""

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
        """Nothing can be written any more."""
        self.full: DiskFull | None = None
        """Nothing can be written until there is space."""
        self.unsynced: set[str] = set()
        """Consumers whose state somebody waits for."""
        self.changed: set[str] = set()
        """Consumers whose state may not be written."""
        self._unmade: dict[str, None] = {}  # consumers whose state needs files
        self._releasing: list[Effect] = []
        self._awaited: dict[str, int] = {}  # consumer -> the change that must be durable

    def promise(self, effects: Iterable[Effect]) -> None:
        """May leave when what is stored is durable: after a failure never."""
        if self.failure is None:
            self.held.extend(effects)

    def begin(self, lane: StreamLane | None) -> list[Commit]:
        """What must run for `held` to be true; it is taken, and comes back with `end`."""
        commits = [] if self.failure is not None else self._of_stream()
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

    def _of_stream(self) -> list[Commit]:
        commits: list[Commit] = []
        store = self._stream.store
        # What is not synced now is written at least, so that a kill costs nothing.
        work = store.pending_sync(write_only=not store.sync_wanted)
        if work is not None:
            commits.append(Commit(work, partial(store.synced, work), work.is_long))
        positions = self._positions
        keep = None if positions is None else positions.pending_sync(self._stream)
        if positions is not None and keep is not None:  # behind all that it speaks of
            commits.append(Commit(keep, partial(positions.synced, keep)))
        return commits

    def _add_consumers(self, commits: list[Commit]) -> None:
        for name in list(self.unsynced):
            files = self._consumer_files.get(name)
            if files is not None:
                sync = files.state.pending_sync()
                if sync is not None:
                    is_long = isinstance(sync, StateMaking)
                    commits.append(Commit(sync, partial(files.state.synced, sync), is_long))
                self._awaited[name] = files.state.recorded_seq
            self.unsynced.discard(name)

    def end(
        self, commits: list[Commit], failure: Exception | None, lane: StreamLane | None
    ) -> list[Effect]:
        """The works have run: what waited for them and may leave now."""
        for commit in commits:
            commit.told(failure)
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
        """Return everything that waits for the disk: the stream is deleted, and that is durable."""
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
        """The disk has failed: whoever waits for it will never be told that all is well."""
        self.failure = self.failure or failure
        self._releasing, self.held = [], []
        self.unsynced.clear()
        self._awaited.clear()
        if lane is not None:
            lane.close()
            lane.forget()

    def flush_consumers(self) -> None:
        """Writes what consumers' states lack on disk, without a sync; `next_making` follows."""
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

    def next_making(self) -> Commit | None:
        """Return what makes the files of one consumer's state; None if no other needs any now."""
        while self._unmade:
            name = next(iter(self._unmade))
            del self._unmade[name]
            files = self._consumer_files.get(name)
            if files is None or not files.state.needs_files:
                continue
            sync = files.state.pending_sync()
            if sync is not None:
                return Commit(sync, partial(self._made, name, files.state, sync), is_long=True)
            self.changed.add(name)  # its files are in use: the next flush asks again
        return None

    def _made(
        self,
        name: str,
        state: LateLog,
        sync: ConsumerSync | StateMaking,
        failure: Exception | None,
    ) -> None:
        state.synced(sync, failure)
        if failure is not None:
            self.changed.add(name)
