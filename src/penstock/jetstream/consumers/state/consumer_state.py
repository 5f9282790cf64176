"""What a consumer must not forget, behind the calls that change it.

A consumer reads `state` and changes it through the calls of `StateLog` only, so that whoever is
behind them can note each change before it is relied on. On disk that is the store's
`ConsumerStateStore`; `MemoryLog` is its twin for consumers that may be gone with the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState

if TYPE_CHECKING:
    from penstock.store.contract import Range

__all__ = ["ConsumerState", "MemoryLog", "StateLog"]


class StateLog(Protocol):
    """The owner of one consumer's state; its calls are `ConsumerStateStore`'s."""

    state: ConsumerState

    def delivered(
        self, consumer_seq: int, stream_seq: int, ts_ns: int, redeliveries: int = 0
    ) -> None:
        """A message went out and waits for its acknowledgement."""

    def delivered_run(self, consumer_seq: int, spans: list[Range], ts_ns: int) -> None:
        """Messages went out for the first time, the first of them as this delivery."""

    def passed(self, consumer_seq: int, stream_seq: int) -> None:
        """A message went out that needs no acknowledgement."""

    def acked(self, stream_seq: int) -> bool:
        """One message is done with; False if nothing was known of it."""

    def acked_run(self, spans: list[Range]) -> list[Range]:
        """Messages are done with; those of which something was known."""

    def acked_through(self, consumer_seq: int, stream_seq: int) -> None:
        """Everything up to and including this delivery is done with; the floor is there."""

    def nacked(self, stream_seq: int, ts_ns: int, redeliveries: int = 0) -> None:
        """An outstanding message waits from this time on, with this count if it is not 0."""

    def dropped(self, stream_seq: int) -> None:
        """An outstanding message was delivered too often and is not any more."""

    def reset(self, consumer_seq: int, stream_seq: int) -> None:
        """Nothing is outstanding; the next deliveries come behind these sequences."""


class MemoryLog:
    """State that is gone with the process."""

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
