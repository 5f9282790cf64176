"""Consumer state: the interface through which a consumer changes its durable state.

A consumer reads `state` and changes it only through the calls of `StateLog`, so that each change
is recorded where it is made. Subclasses decide where: `state_files.ConsumerStateStore` in files,
`LazyConsumerLog` in files that it creates with the first change, `MemoryLog` nowhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.jetstream.consumers.state import consumer_deltas as deltas
from penstock.jetstream.consumers.state.consumer_deltas import ENTRIES_MAX, ConsumerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.contract import Range

__all__ = ["ConsumerState", "MemoryLog", "StateLog"]


class StateLog:
    """Changes a consumer's state and records each change; here they are recorded nowhere.

    Subclasses override `_note`. It gets the function that packs the change as a delta, and what to
    pack, so that nothing is packed in vain.
    """

    __slots__ = ("state",)

    def __init__(self, state: ConsumerState) -> None:
        self.state = state

    def _note(self, pack: Callable[..., bytes], *fields: object) -> None:
        """Record one change."""

    def delivered(
        self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int = 0
    ) -> None:
        """Record a delivery that waits for an ack."""
        state = self.state
        if len(state.pending) >= ENTRIES_MAX or len(state.redelivered) >= ENTRIES_MAX:
            _check_room(state, stream_seq, redeliveries)
        self._note(
            deltas.pack_delivered, deltas.DELIVERED, consumer_seq, stream_seq, ts_ns, redeliveries
        )
        state.deliver(consumer_seq, stream_seq, ts_ns, redeliveries)

    def delivered_run(self, consumer_seq: int, spans: list[Range], ts_ns: int) -> None:
        """Record first deliveries; `consumer_seq` is that of the first."""
        state = self.state
        if len(state.pending) + deltas.span_count(spans) > ENTRIES_MAX:
            raise _too_many()
        self._note(deltas.pack_delivered_run, consumer_seq, ts_ns, spans)
        state.deliver_run(consumer_seq, ts_ns, spans)

    def passed(self, consumer_seq: int, stream_seq: int) -> None:
        """Record a delivery that needs no ack."""
        self._note(deltas.pack_pair, deltas.PASSED, consumer_seq, stream_seq)
        self.state.pass_by(consumer_seq, stream_seq)

    def acked(self, stream_seq: int) -> bool:
        """Record an ack; False, and no change, if the message was unknown."""
        state = self.state
        if stream_seq not in state.pending and stream_seq not in state.redelivered:
            return False
        self._note(deltas.pack_acked, deltas.ACKED, stream_seq)
        state.ack(stream_seq)
        return True

    def acked_run(self, spans: list[Range]) -> list[Range]:
        """Record acks; return those whose messages were known. Others are not recorded."""
        known = self.state.ack_run(spans)
        if known:
            self._note(deltas.pack_acked_run, known)
        return known

    def acked_through(self, consumer_seq: int, stream_seq: int) -> None:
        """Record an ack of everything up to this delivery; the floor moves there."""
        self._note(deltas.pack_pair, deltas.ACKED_THROUGH, consumer_seq, stream_seq)
        self.state.ack_through(consumer_seq, stream_seq)

    def nacked(self, stream_seq: int, ts_ns: int, redeliveries: int = 0) -> None:
        """Set when the wait of an ack-pending message starts, and its count if it is not 0."""
        self._note(deltas.pack_nacked, deltas.NACKED, stream_seq, ts_ns, redeliveries)
        self.state.nack(stream_seq, ts_ns, redeliveries)

    def dropped(self, stream_seq: int) -> None:
        """Remove an ack-pending message that exceeded max_deliver."""
        self._note(deltas.pack_acked, deltas.DROPPED, stream_seq)
        self.state.drop(stream_seq)

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        """Clear all ack-pending messages; the next deliveries come after these sequences."""
        self._note(deltas.pack_pair, deltas.RESET, consumer_seq, stream_seq)
        self.state.reset(consumer_seq, stream_seq)


class MemoryLog(StateLog):
    """State that is lost with the process."""

    __slots__ = ()

    def __init__(self, state: ConsumerState | None = None) -> None:
        super().__init__(state or ConsumerState())


def _check_room(state: ConsumerState, stream_seq: int, redeliveries: int) -> None:
    grows = len(state.pending) >= ENTRIES_MAX and stream_seq not in state.pending
    counts = redeliveries and stream_seq not in state.redelivered
    if grows or (counts and len(state.redelivered) >= ENTRIES_MAX):
        raise _too_many()


def _too_many() -> ValueError:
    return ValueError(f"a consumer has at most {ENTRIES_MAX} messages outstanding")
