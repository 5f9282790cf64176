"""Consumer state: the interface through which a consumer changes its durable state.

A consumer reads `state` and changes it only through the calls of `StateLog`, so that the
implementation can record each change before it is relied on. `state_files.ConsumerStateStore`
stores the state on disk; `MemoryLog` is for consumers whose state may end with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState

if TYPE_CHECKING:
    from penstock.store.contract import Range

__all__ = ["ConsumerState", "MemoryLog", "StateLog"]


class StateLog(Protocol):
    """The owner of one consumer's state, with the calls of `ConsumerStateStore`."""

    state: ConsumerState

    def delivered(
        self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int = 0
    ) -> None:
        """Record a delivery that waits for an ack."""

    def delivered_run(self, consumer_seq: int, spans: list[Range], ts_ns: int) -> None:
        """Record first deliveries; `consumer_seq` is that of the first."""

    def passed(self, consumer_seq: int, stream_seq: int) -> None:
        """Record a delivery that needs no ack."""

    def acked(self, stream_seq: int) -> bool:
        """Record an ack; False if the message was unknown."""

    def acked_run(self, spans: list[Range]) -> list[Range]:
        """Record acks; return those whose messages were known."""

    def acked_through(self, consumer_seq: int, stream_seq: int) -> None:
        """Record an ack of everything up to this delivery; the floor moves there."""

    def nacked(self, stream_seq: int, ts_ns: int, redeliveries: int = 0) -> None:
        """Set when the wait of an ack-pending message starts, and its count if it is not 0."""

    def dropped(self, stream_seq: int) -> None:
        """Remove an ack-pending message that exceeded max_deliver."""

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        """Clear all ack-pending messages; the next deliveries come after these sequences."""


class MemoryLog:
    """State that is lost with the process."""

    __slots__ = ("state",)

    def __init__(self, state: ConsumerState | None = None) -> None:
        self.state = state or ConsumerState()

    def delivered(
        self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int = 0
    ) -> None:
        self.state.deliver(consumer_seq, stream_seq, ts_ns, redeliveries)

    def delivered_run(self, consumer_seq: int, spans: list[Range], ts_ns: int) -> None:
        self.state.deliver_run(consumer_seq, ts_ns, spans)

    def passed(self, consumer_seq: int, stream_seq: int) -> None:
        self.state.pass_by(consumer_seq, stream_seq)

    def acked(self, stream_seq: int) -> bool:
        state = self.state
        if stream_seq not in state.pending and stream_seq not in state.redelivered:
            return False
        state.ack(stream_seq)
        return True

    def acked_run(self, spans: list[Range]) -> list[Range]:
        return self.state.ack_run(spans)

    def acked_through(self, consumer_seq: int, stream_seq: int) -> None:
        self.state.ack_through(consumer_seq, stream_seq)

    def nacked(self, stream_seq: int, ts_ns: int, redeliveries: int = 0) -> None:
        self.state.nack(stream_seq, ts_ns, redeliveries)

    def dropped(self, stream_seq: int) -> None:
        self.state.drop(stream_seq)

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        self.state.reset(consumer_seq, stream_seq)
