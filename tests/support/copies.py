"""A stream that copies another, without sockets: the test is the origin, and the clock.

`Copy` hosts a stream in memory and its upstream. What it asks is in `requests`, what it says to
flow control in `answers`; a test answers and delivers as an origin would, or fails to.
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from penstock.api.stream_config import StreamSource
from penstock.base.effects import Fetch, Send
from penstock.base.message import Inbound
from penstock.jetstream.environment import Environment
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.sources.stream_sources import StreamSources
from penstock.jetstream.streams.replicated_stream import ReplicatedStream
from penstock.jetstream.streams.retention import limits_of
from penstock.jetstream.streams.stream import Stream
from penstock.store.memstore import MemStore
from support.hosts import committed, effects_of
from support.messages import stored_in
from support.stream_run import NEW_YEAR, SECOND, block, config

if TYPE_CHECKING:
    from penstock.jetstream.host.replicator import Replicate
    from penstock.store.contract import MessageRecord

ORIGIN = StreamSource(name="O")
MIRROR: dict[str, Any] = {"mirror": ORIGIN, "subjects": (), "duplicate_window": 0}
SOURCE: dict[str, Any] = {"sources": (ORIGIN,)}
CONSUMER = "made"
DELIVER = "$JS.deliver"
IDENTITY = "identity"


class Copy:
    """One copying stream and the world around it."""

    def __init__(
        self,
        *,
        store: MemStore | None = None,
        domain: str = "",
        replicate: Replicate | None = None,
        **fields: Any,
    ) -> None:
        self.replicate = replicate
        self.cfg = config(**fields)
        self.store = store or MemStore(limits_of(self.cfg))
        self.now_ns = NEW_YEAR
        self.domain = domain
        self._numbers = itertools.count(10_000_000)
        self.open()

    def open(self) -> None:
        """Starts, or starts again over the same store."""
        environment = Environment(
            nuid=lambda: str(next(self._numbers)),
            noise=bytes,
            seed=lambda: 0,
            has_interest=lambda subject, queue: True,
            server_name="server",
            domain=self.domain,
        )
        kind = Stream if self.replicate is None else ReplicatedStream
        stream = kind(self.cfg, self.store, created_ns=1)
        while stream.recover(self.now_ns) is not None:
            pass
        self.host = StreamHost(stream, None, replicate=self.replicate)
        self.stream_sources = StreamSources(self.host, environment)
        self.host.attach_sources(self.stream_sources)
        self.requests: list[Send] = []
        self.answers: list[Send] = []
        self.fetches = 0
        self.wires: dict[str, Any] = {}
        self.stream_sources.follow(self.now_ns)
        self.pass_time(0)

    # -- time and effects

    def pass_time(self, seconds: float) -> None:
        """Lets time pass, deadline by deadline."""
        until_ns = self.now_ns + round(seconds * SECOND)
        while True:
            self._settle()
            due_ns = self.host.next_deadline_ns
            if due_ns is None or due_ns > until_ns:
                break
            self.now_ns = max(self.now_ns, due_ns)
            self.host.tick(self.now_ns)
        self.now_ns = until_ns

    def _settle(self) -> None:
        for wire in self.stream_sources.take_wires():
            if wire.take is None:
                self.wires.pop(wire.subject, None)
            else:
                self.wires[wire.subject] = wire
        for effect in effects_of(self.host):
            self.fetches += isinstance(effect, Fetch)
            if isinstance(effect, Send):
                self.requests.append(effect)
        self.answers += [each for each in committed(self.host) if isinstance(each, Send)]

    def update(self, **fields: Any) -> None:
        """The stream gets another configuration."""
        self.cfg = config(**fields)
        self.host.propose(self.host.stream.plan_update(self.cfg, self.now_ns))
        self.stream_sources.follow(self.now_ns)
        self.pass_time(0)

    # -- what it asks

    @property
    def asked(self) -> dict[str, Any]:
        """The consumer that was asked for last."""
        config: dict[str, Any] = json.loads(self.requests[-1].payload)["config"]
        return config

    @property
    def num_asked(self) -> int:
        return sum("CONSUMER.DELETE" not in each.subject for each in self.requests)

    # -- what the origin does

    def receive(self, to: str, msg: Inbound) -> None:
        """A message comes, if there is a listener."""
        wire = self.wires.get(to)
        if wire is not None:
            self.stream_sources.receive(wire, msg, self.now_ns)
        self.pass_time(0)

    def answer(
        self, delivered: int = 0, *, identity: str = IDENTITY, pending: int = 0, **more: Any
    ) -> None:
        """The origin has made the consumer; it will go on behind this sequence."""
        cfg = {"deliver_subject": DELIVER, "ack_policy": "none", **more.pop("config", {})}
        body = {
            "name": CONSUMER,
            "config": cfg,
            "delivered": {"consumer_seq": 0, "stream_seq": delivered},
            "num_pending": pending,
            **more,
        }
        header = block({"Nats-Stream-Identity": identity}) if identity else b""
        self.reply(json.dumps(body).encode(), header)

    def refuse(self, err_code: int = 10059) -> None:
        """The origin does not make a consumer."""
        error = {"code": 404, "err_code": err_code, "description": "no"}
        self.reply(json.dumps({"error": error}).encode())

    def reply(self, payload: bytes, header: bytes = b"") -> None:
        inbox = self.requests[-1].reply
        self.receive(inbox, Inbound(inbox, "", header, payload))

    def deliver(
        self,
        seq: int,
        consumer_seq: int,
        payload: bytes = b"",
        *,
        subject: str = "o.a",
        consumer: str = CONSUMER,
        header: dict[str, str] | None = None,
        pending: int = 0,
        to: str = DELIVER,
    ) -> None:
        """The consumer delivers a message."""
        reply = f"$JS.ACK.O.{consumer}.1.{seq}.{consumer_seq}.{NEW_YEAR + seq}.{pending}"
        self.receive(to, Inbound(subject, reply, block(header), payload))

    def beat(self, consumer_seq: int, stalled: str = "", *, to: str = DELIVER) -> None:
        """The consumer gives a sign of life."""
        line = f"Nats-Consumer-Stalled: {stalled}\r\n" if stalled else ""
        header = f"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: {consumer_seq}\r\n{line}\r\n"
        self.receive(to, Inbound(to, "", header.encode(), b""))

    def ask_flow(self, reply: str) -> None:
        """The consumer wants to know how far the copy is."""
        header = b"NATS/1.0 100 FlowControl Request\r\n\r\n"
        self.receive(DELIVER, Inbound(DELIVER, reply, header, b""))

    # -- what came of it

    @property
    def messages(self) -> dict[int, MessageRecord]:
        """Everything that is stored, by sequence."""
        return stored_in(self.store)

    @property
    def notes(self) -> list[int]:
        """The sequences the copies had at their origins."""
        headers = [record.header for record in self.messages.values()]
        return [int(each.split(b"Nats-Stream-Source: ")[1].split(b" ")[1]) for each in headers]


def connected(**fields: Any) -> Copy:
    """A copy whose origin has answered."""
    copy = Copy(**fields)
    copy.answer()
    return copy
