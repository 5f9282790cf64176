"""Acknowledgements in one account: plain ones as their lane collected them, others one by one.

What the lane collected in a turn goes to its consumers at the turn's end, or before anything that
could tell whether it had: another kind of ack, a request. Consumers are looked up by name then, so
that an ack never reaches one that is gone. The lane learns of a consumer with its first plain ack.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.ack_protocol import ack_scope, parse_ack_subject
from penstock.base.message import Inbound
from penstock.jetstream.consumers.ack_lane import AckLane

if TYPE_CHECKING:
    from penstock.jetstream.consumers.acks import Acked
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.jetstream.stream_driver import StreamDriver
    from penstock.server.net.client_link import ClientLink


class AckIntake:
    """Takes acknowledgements in."""

    def __init__(self, account: AccountRuntime) -> None:
        self._account = account
        self._scope = ack_scope(account.assets.ambient.domain, account.name)
        self.lane = AckLane(call=self.received, owner=self, scope=self._scope)

    def mark(self) -> None:
        """The lane has been at work: a turn ends."""
        self.take_collected()

    def take_collected(self) -> None:
        """Hands what the lane collected to the consumers."""
        for box in self.lane.take_filled():
            spans = box.take()
            found = self._account.consumer(box.stream, box.consumer)
            if found is None:
                continue
            driver, consumer = found
            acked = consumer.ack_many(spans, self._account.edge.now_ns())
            self._pass_on(driver, consumer, acked, is_awaited=False)

    def received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        """An ack that the lane did not take. One that no consumer takes has no responders."""
        self.take_collected()
        ref = parse_ack_subject(subject)
        found = None
        if ref is not None and ref.scope in ("", self._scope):
            found = self._account.consumer(ref.stream, ref.consumer)
        if ref is None or found is None or not found[1].takes_acks:
            self._account.nobody(Inbound(subject, reply, header, payload), source)
            return
        driver, consumer = found
        acked = consumer.ack(ref, reply, header, payload, self._account.edge.now_ns())
        self._pass_on(driver, consumer, acked, is_awaited=bool(reply))
        if consumer.takes_plain_acks:
            self.lane.open(ref.stream, ref.consumer)

    def _pass_on(
        self, driver: StreamDriver, consumer: Consumer, acked: Acked, *, is_awaited: bool
    ) -> None:
        driver.host.acked(consumer, acked.effects, acked.settled, is_awaited=is_awaited)
        driver.mark()

    def forget(self, consumer: Consumer) -> None:
        """A consumer is gone, or has another configuration."""
        self.lane.close(consumer.stream_name, consumer.name)
