"""The state of a consumer that has no files of its own until it changes.

Most consumers are made long before they are used, and some never are. Where such a one begins is
written with its configuration; files for what it is given and acknowledges are made when there is
something to write in them. Invariant: nothing is called durable before those files are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.consumers.state import MemoryLog

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.consumers.state import ConsumerState, StateLog
    from penstock.store.consumer_state import ConsumerStateStore, ConsumerSync
    from penstock.store.contract import Range


class LateLog:
    """A consumer's state, in memory or in files; its calls are `ConsumerStateStore`'s."""

    __slots__ = ("_changes", "_log", "_make", "_store", "state")

    def __init__(
        self,
        state: ConsumerState,
        make: Callable[[ConsumerState], ConsumerStateStore],
        store: ConsumerStateStore | None = None,
    ) -> None:
        """`make` makes the files, durably, with a state to begin with; `store`: they are there."""
        self.state = state
        self._make = make
        self._store = store
        self._log: StateLog = MemoryLog(state) if store is None else store
        self._changes = 0

    @property
    def has_files(self) -> bool:
        return self._store is not None

    def written_elsewhere(self) -> None:
        """The state as it is now is durable, with the configuration."""
        self._changes = 0

    # -- changes

    def delivered(
        self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int = 0
    ) -> None:
        self._changes += 1
        self._log.delivered(consumer_seq, stream_seq, ts_ns, redeliveries)

    def delivered_run(self, consumer_seq: int, spans: list[Range], ts_ns: int) -> None:
        self._changes += 1
        self._log.delivered_run(consumer_seq, spans, ts_ns)

    def passed(self, consumer_seq: int, stream_seq: int) -> None:
        self._changes += 1
        self._log.passed(consumer_seq, stream_seq)

    def acked(self, stream_seq: int) -> bool:
        self._changes += 1
        return self._log.acked(stream_seq)

    def acked_run(self, spans: list[Range]) -> list[Range]:
        self._changes += 1
        return self._log.acked_run(spans)

    def acked_through(self, consumer_seq: int, stream_seq: int) -> None:
        self._changes += 1
        self._log.acked_through(consumer_seq, stream_seq)

    def nacked(self, stream_seq: int, ts_ns: int, redeliveries: int = 0) -> None:
        self._changes += 1
        self._log.nacked(stream_seq, ts_ns, redeliveries)

    def dropped(self, stream_seq: int) -> None:
        self._changes += 1
        self._log.dropped(stream_seq)

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        self._changes += 1
        self._log.reset(consumer_seq, stream_seq)

    # -- durability

    @property
    def recorded_seq(self) -> int:
        return self._changes if self._store is None else self._store.recorded_seq

    @property
    def durable_seq(self) -> int:
        return 0 if self._store is None else self._store.durable_seq

    def flush(self) -> None:
        """Writes what is not written. Blocks for some syncs if there are no files yet."""
        if self._store is not None:
            self._store.flush()
        elif self._changes:
            self._log = self._store = self._make(self.state)

    def pending_sync(self) -> ConsumerSync | None:
        if self._store is None:
            self.flush()
        return None if self._store is None else self._store.pending_sync()

    def synced(self, work: ConsumerSync, failure: Exception | None = None) -> None:
        assert self._store is not None
        self._store.synced(work, failure)

    def close(self) -> None:
        if self._store is None:
            self.flush()
        if self._store is not None:
            self._store.close()
