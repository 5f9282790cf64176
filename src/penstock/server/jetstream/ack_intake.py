"""Acks of one account: plain acks in batches from the ack lane, other acks one by one.

Invariant: the acks that the lane collected in a turn reach their consumers at the end of the turn,
or before anything whose result depends on them: another kind of ack, or a request. Consumers are
looked up by name then, so an ack never reaches a deleted consumer. The first plain ack of a
consumer opens the lane for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.ack_protocol import ack_scope, parse_ack_subject
from penstock.base.message import Inbound
from penstock.broker.router import LaneListener
from penstock.jetstream.consumers.ack_lane import AckLane

if TYPE_CHECKING:
    from penstock.jetstream.consumers.acks import Acked
    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.server.jetstream.account_runtime import AccountRuntime
    from penstock.server.jetstream.stream_driver import StreamDriver
    from penstock.server.net.client_link import ClientLink


class AckIntake(LaneListener):
    """Passes acks to consumers."""

    def __init__(self, account: AccountRuntime) -> None:
        self._account = account
        self._scope = ack_scope(account.assets.environment.domain, account.name)
        self.lane = AckLane(listener=self, scope=self._scope)

    def lane_changed(self) -> None:
        """Take the collected acks at the end of a turn in which the lane worked."""
        self.take_collected()

    def take_collected(self) -> None:
        """Pass the acks that the lane collected to the consumers."""
        for box in self.lane.take_filled():
            spans = box.take()
            found = self._account.consumer(box.stream, box.consumer)
            if found is None:
                continue
            driver, consumer = found
            acked = consumer.ack_many(spans, self._account.runtime.now_ns())
            self._pass_on(driver, consumer, acked, is_awaited=False)

    def received(
        self, subject: str, reply: str, header: bytes, payload: bytes, source: ClientLink | None
    ) -> None:
        """Take an ack that the lane did not take; an ack for no consumer gets no responders."""
        self.take_collected()
        ref = parse_ack_subject(subject)
        found = None
        if ref is not None and ref.scope in ("", self._scope):
            found = self._account.consumer(ref.stream, ref.consumer)
        if ref is None or found is None or not found[1].takes_acks:
            self._account.reply_no_responders(Inbound(subject, reply, header, payload), source)
            return
        driver, consumer = found
        acked = consumer.ack(ref, reply, header, payload, self._account.runtime.now_ns())
        self._pass_on(driver, consumer, acked, is_awaited=bool(reply))
        if consumer.takes_plain_acks:
            self.lane.open(ref.stream, ref.consumer)

    def _pass_on(
        self, driver: StreamDriver, consumer: Consumer, acked: Acked, *, is_awaited: bool
    ) -> None:
        driver.host.acked(consumer, acked.effects, acked.acked_spans, is_awaited=is_awaited)
        driver.mark()

    def forget(self, consumer: Consumer) -> None:
        """Close the lane for a consumer that was deleted or changed."""
        self.lane.close(consumer.stream_name, consumer.name)
