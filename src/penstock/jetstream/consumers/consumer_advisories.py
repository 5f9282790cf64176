"""What a consumer tells the world about itself: advisories and samples, under its own name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api import api_subjects
from penstock.api.advisories import (
    ConsumerAck,
    ConsumerPause,
    GroupPinned,
    GroupUnpinned,
    MaxDeliveries,
    MsgNaked,
    MsgTerminated,
)
from penstock.base.effects import Advise

if TYPE_CHECKING:
    from penstock.api.ack_protocol import AckRef


class Events:
    """Makes the events of one consumer."""

    __slots__ = ("_account", "_consumer", "_stream", "_tail")

    def __init__(self, stream: str, consumer: str, account: str) -> None:
        self._stream = stream
        self._consumer = consumer
        self._account = account
        self._tail = f"{stream}.{consumer}"

    def acked(self, ref: AckRef, ack_time_ns: int) -> Advise:
        """A sample: how long an acknowledgement took."""
        event = ConsumerAck(
            stream=self._stream,
            consumer=self._consumer,
            consumer_seq=ref.consumer_seq,
            stream_seq=ref.stream_seq,
            ack_time=ack_time_ns,
            deliveries=ref.delivered,
        )
        return Advise(api_subjects.CONSUMER_ACK + self._tail, event)

    def refused(self, ref: AckRef) -> Advise:
        """A client sent a message back."""
        event = MsgNaked(
            stream=self._stream,
            consumer=self._consumer,
            consumer_seq=ref.consumer_seq,
            stream_seq=ref.stream_seq,
            deliveries=ref.delivered,
        )
        return Advise(api_subjects.MSG_NAKED + self._tail, event)

    def terminated(self, consumer_seq: int, seq: int, deliveries: int, reason: str) -> Advise:
        """A message will not be delivered again."""
        event = MsgTerminated(
            stream=self._stream,
            consumer=self._consumer,
            consumer_seq=consumer_seq,
            stream_seq=seq,
            deliveries=deliveries,
            reason=reason,
        )
        return Advise(api_subjects.MSG_TERMINATED + self._tail, event)

    def exhausted(self, seq: int, deliveries: int) -> Advise:
        """A message was delivered as often as allowed."""
        event = MaxDeliveries(
            stream=self._stream, consumer=self._consumer, stream_seq=seq, deliveries=deliveries
        )
        return Advise(api_subjects.MAX_DELIVERIES + self._tail, event)

    def pinned(self, group: str, pin_id: str) -> Advise:
        """A client is pinned."""
        event = GroupPinned(
            account=self._account,
            stream=self._stream,
            consumer=self._consumer,
            group=group,
            pinned_id=pin_id,
        )
        return Advise(api_subjects.CONSUMER_PINNED + self._tail, event)

    def unpinned(self, group: str, reason: str) -> Advise:
        """A client is pinned no longer."""
        event = GroupUnpinned(
            account=self._account,
            stream=self._stream,
            consumer=self._consumer,
            group=group,
            reason=reason,
        )
        return Advise(api_subjects.CONSUMER_UNPINNED + self._tail, event)

    def paused(self, until_ns: int, *, paused: bool) -> Advise:
        """The consumer pauses, or goes on."""
        event = ConsumerPause(
            stream=self._stream, consumer=self._consumer, paused=paused, pause_until=until_ns
        )
        return Advise(api_subjects.CONSUMER_PAUSE + self._tail, event)
