"""The advisories and ack samples that a consumer publishes."""

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
    """Builds the advisories of one consumer."""

    __slots__ = ("_account", "_consumer", "_stream", "_tail")

    def __init__(self, stream: str, consumer: str, account: str) -> None:
        self._stream = stream
        self._consumer = consumer
        self._account = account
        self._tail = f"{stream}.{consumer}"

    def acked(self, ref: AckRef, ack_time_ns: int) -> Advise:
        """Return an ack sample: how long the ack took."""
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
        """Return the advisory of a nak."""
        event = MsgNaked(
            stream=self._stream,
            consumer=self._consumer,
            consumer_seq=ref.consumer_seq,
            stream_seq=ref.stream_seq,
            deliveries=ref.delivered,
        )
        return Advise(api_subjects.MSG_NAKED + self._tail, event)

    def terminated(self, consumer_seq: int, seq: int, deliveries: int, reason: str) -> Advise:
        """Return the advisory of a message that will not be delivered again."""
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
        """Return the advisory of a message that reached max_deliver."""
        event = MaxDeliveries(
            stream=self._stream, consumer=self._consumer, stream_seq=seq, deliveries=deliveries
        )
        return Advise(api_subjects.MAX_DELIVERIES + self._tail, event)

    def pinned(self, group: str, pin_id: str) -> Advise:
        """Return the advisory of a newly pinned client."""
        event = GroupPinned(
            account=self._account,
            stream=self._stream,
            consumer=self._consumer,
            group=group,
            pinned_id=pin_id,
        )
        return Advise(api_subjects.CONSUMER_PINNED + self._tail, event)

    def unpinned(self, group: str, reason: str) -> Advise:
        """Return the advisory of a client that is no longer pinned."""
        event = GroupUnpinned(
            account=self._account,
            stream=self._stream,
            consumer=self._consumer,
            group=group,
            reason=reason,
        )
        return Advise(api_subjects.CONSUMER_UNPINNED + self._tail, event)

    def paused(self, until_ns: int, *, paused: bool) -> Advise:
        """Return the advisory of a pause or a resume."""
        event = ConsumerPause(
            stream=self._stream, consumer=self._consumer, paused=paused, pause_until=until_ns
        )
        return Advise(api_subjects.CONSUMER_PAUSE + self._tail, event)
