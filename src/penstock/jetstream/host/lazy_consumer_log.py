"""The state of a consumer that gets its own state files only when it first changes.

Many consumers are created long before they are used, and some are never used. Until then, the
consumer's initial state is stored with its configuration. The first change that must be persisted
creates the state files on a disk thread from a copy of the state; changes made meanwhile follow
with the next checkpoint. Invariant: no change counts as durable before it is durable in those files
or with the configuration.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState
from penstock.jetstream.consumers.state.consumer_state import StateLog
from penstock.store.errors import StoreError, SyncFailed

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.consumers.state.state_files import ConsumerStateStore, ConsumerSync
    from penstock.jetstream.host.disk_work import FileGate


class StateFileCreation:
    """Creates the state files: call `run` on any thread, then pass this object to `synced`.

    `run` may be called again after an error.
    """

    __slots__ = ("_make", "_value", "store", "upto")

    def __init__(
        self, make: Callable[[ConsumerState], ConsumerStateStore], value: bytes, upto: int
    ) -> None:
        self._make = make
        self._value = value
        self.upto = upto
        """The number of the last change that the new files include."""
        self.store: ConsumerStateStore | None = None

    def run(self) -> None:
        """Create the files, durably. Blocks for several syncs."""
        if self.store is None:
            self.store = self._make(ConsumerState.decode(self._value)[0])


class LazyConsumerLog(StateLog):
    """A consumer's state, in memory or in files."""

    __slots__ = (
        "_before",
        "_changes",
        "_durable",
        "_failure",
        "_gate",
        "_make",
        "_store",
    )

    def __init__(
        self,
        state: ConsumerState,
        make: Callable[[ConsumerState], ConsumerStateStore],
        gate: FileGate,
        store: ConsumerStateStore | None = None,
    ) -> None:
        """`make` creates the files durably from an initial state while the caller holds `gate`.
        Pass `store` if the files exist already."""
        super().__init__(state)
        self._make = make
        self._gate = gate
        self._store = store
        self._changes = 0
        self._durable = 0  # how many of the changes are durable
        self._failure: SyncFailed | None = None
        self._before = 0  # changes made before the store began to count

    @property
    def has_files(self) -> bool:
        return self._store is not None

    @property
    def needs_files(self) -> bool:
        """Whether there are changes that are not durable and no files to hold them."""
        return self._store is None and self._changes > self._durable

    def stored_with_config(self, upto: int) -> None:
        """Record that the state after change `upto` is durable, stored with the configuration."""
        self._durable = max(self._durable, upto)

    def _note(self, pack: Callable[..., bytes], *fields: object) -> None:
        if self._store is None:
            self._changes += 1
        else:
            self._store.note_change(pack, fields)

    # -- durability

    @property
    def recorded_seq(self) -> int:
        store = self._store
        return self._changes if store is None else self._before + store.recorded_seq

    @property
    def durable_seq(self) -> int:
        store = self._store
        return self._durable if store is None else self._before + store.durable_seq

    def flush(self) -> None:
        """Write unwritten changes if the files exist; see `needs_files` otherwise."""
        if self._store is not None:
            self._store.flush()

    def pending_sync(self) -> ConsumerSync | StateFileCreation | None:
        """Return the work that makes the state durable; None if there is nothing to do, or if other
        work on the files is running: the caller must then call again when that has ended."""
        if self._store is not None:
            return self._store.pending_sync()
        if self._failure is not None:
            raise self._failure
        if not self.needs_files or self._gate.is_taken:
            return None
        self._gate.take()
        return StateFileCreation(self._make, self.state.encode(0), self._changes)

    def synced(
        self, work: ConsumerSync | StateFileCreation, failure: Exception | None = None
    ) -> None:
        """Take back finished work, with its failure if there was one."""
        if isinstance(work, StateFileCreation):
            self._made(work, failure)
        else:
            assert self._store is not None
            self._store.synced(work, failure)

    def _made(self, work: StateFileCreation, failure: Exception | None) -> None:
        store = work.store
        if failure is None and store is not None:
            store.take_over(self.state, self._changes - work.upto)
            self._store = store
            self._before = work.upto
        if isinstance(failure, SyncFailed):
            self._failure = failure  # a later sync does not rewrite what a failed one lost
        self._gate.leave()

    def close(self) -> None:
        """Write and sync pending changes, and close the files. Blocks."""
        work = None if self._store is not None else self.pending_sync()
        if isinstance(work, StateFileCreation):
            try:
                work.run()
            except StoreError as error:
                self.synced(work, error)
                raise
            self.synced(work)
        if self._store is not None:
            self._store.close()

    def abandon(self) -> None:
        """Close the files without writing: the consumer is deleted."""
        if self._store is not None:
            self._store.abandon()
