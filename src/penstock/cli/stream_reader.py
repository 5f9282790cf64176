"""Read a stream in order, once, without lasting effects; used by views, watches and listings.

The reader uses an ephemeral pull consumer without acknowledgements, in batches. Deliveries are
numbered, so the reader detects a gap (a lost connection, another server) and creates a new consumer
that starts right after the last message read. No message is delivered twice or skipped, and the
size of a batch is bounded.
"""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from penstock.api.timestamps import format_time
from penstock.base.units import SECOND_NS
from penstock.cli.api_calls import Api, FetchedMessage
from penstock.cli.cli_errors import Failure, RequestRefused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

    from penstock.api.api_client import Document

BATCH: Final = 100
BATCH_BYTES_MAX: Final = 1 << 30
EXPIRES_NS: Final = 30 * SECOND_NS
HEARTBEAT_NS: Final = SECOND_NS
SILENCE_SECONDS: Final = 2 * HEARTBEAT_NS / SECOND_NS
INACTIVE_NS: Final = 300 * SECOND_NS
ATTEMPTS_MAX: Final = 5
RETRY_SECONDS: Final = 1

_HEARTBEAT: Final = "100"
#: Tokens of a delivery's reply subject; newer servers insert domain and account.
_SHORT_ACK, _LONG_ACK = 9, 11


@dataclass(frozen=True, slots=True)
class ReadMessage:
    """Metadata of a delivered message, from its reply subject."""

    stream: str
    consumer: str
    delivered: int
    stream_seq: int
    consumer_seq: int
    time_ns: int
    pending: int

    @classmethod
    def of(cls, reply: str) -> ReadMessage:
        tokens = reply.split(".")
        if len(tokens) >= _LONG_ACK:
            del tokens[2:4]
        if len(tokens) < _SHORT_ACK or tokens[:2] != ["$JS", "ACK"]:
            raise Failure("the message does not come from a stream")
        numbers = map(int, tokens[4:9])
        return cls(tokens[2], tokens[3], *numbers)


def stored(message: Msg, delivery: ReadMessage) -> FetchedMessage:
    """Return a delivered message as the stream stores it."""
    return FetchedMessage(
        message.subject,
        delivery.stream_seq,
        format_time(delivery.time_ns),
        dict(message.headers or {}),
        message.data,
    )


@dataclass(slots=True)
class ReadStart:
    """Which messages to read, and from where."""

    subjects: list[str] = field(default_factory=list)
    policy: str = "all"
    seq: int = 0
    time: str = ""
    headers_only: bool = False

    def config(self, name: str) -> Document:
        config: Document = {
            "name": name,
            "deliver_policy": self.policy,
            "ack_policy": "none",
            "mem_storage": True,
            "num_replicas": 1,
            "inactive_threshold": INACTIVE_NS,
        }
        config |= {"opt_start_seq": self.seq} if self.policy == "by_start_sequence" else {}
        config |= {"opt_start_time": self.time} if self.policy == "by_start_time" else {}
        config |= {"headers_only": True} if self.headers_only else {}
        if len(self.subjects) == 1:
            config["filter_subject"] = self.subjects[0]
        elif self.subjects:
            config["filter_subjects"] = self.subjects
        return config


class StreamReader:
    """The messages of a stream from a start; with `follow` it continues at the end."""

    def __init__(self, api: Api, stream: str, start: ReadStart, *, follow: bool = False) -> None:
        self._api = api
        self._stream = stream
        self._start = start
        self._follow = follow
        self._consumer = ""
        self._expected = 1
        self._wanted = 0
        #: Messages that existed when reading began, or remain after the last one read.
        self.pending = 0

    async def __aenter__(self) -> StreamReader:
        self._inbox = self._api.client.new_inbox()
        self._subscription: Subscription = await self._api.client.subscribe(
            f"{self._inbox}.*", pending_bytes_limit=BATCH_BYTES_MAX
        )
        try:
            await self._make()
        except BaseException:
            await self._subscription.unsubscribe()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._api.client.is_closed:
            return
        await self._subscription.unsubscribe()
        await self._drop()

    async def _make(self) -> None:
        name = self._api.client.new_inbox().rpartition(".")[2]
        answer = await self._api.call(
            f"CONSUMER.CREATE.{self._stream}.{name}",
            {"stream_name": self._stream, "config": self._start.config(name)},
        )
        self._consumer, self._expected, self._wanted = name, 1, 0
        self.pending = int(answer.get("num_pending", 0))

    async def _drop(self) -> None:
        """Delete the consumer now; otherwise the server deletes it after INACTIVE_NS."""
        try:
            await self._api.call(f"CONSUMER.DELETE.{self._stream}.{self._consumer}")
        except Failure:
            return

    async def __aiter__(self) -> AsyncIterator[FetchedMessage]:
        while self._follow or self.pending:
            message = await self._next()
            if message is None:
                await self._make_again()
                continue
            delivery = ReadMessage.of(message.reply)
            if delivery.consumer != self._consumer:
                continue
            if delivery.consumer_seq != self._expected:
                await self._make_again()
                continue
            self._expected += 1
            self._wanted -= 1
            self.pending = delivery.pending
            self._start = ReadStart(
                self._start.subjects,
                "by_start_sequence",
                delivery.stream_seq + 1,
                headers_only=self._start.headers_only,
            )
            yield stored(message, delivery)

    async def _make_again(self) -> None:
        """Continue with a new consumer; a refusal, such as a missing stream, ends the reading."""
        await self._drop()
        attempt = 1
        while True:
            try:
                return await self._make()
            except RequestRefused:
                raise
            except Failure:
                if attempt == ATTEMPTS_MAX and not self._follow:
                    raise
            attempt += 1
            await asyncio.sleep(RETRY_SECONDS)

    async def _next(self) -> Msg | None:
        """Return the next message; None if a new consumer is needed."""
        from nats.errors import TimeoutError

        while True:
            if self._wanted <= 0:
                await self._ask()
            try:
                message = await self._subscription.next_msg(SILENCE_SECONDS)
            except TimeoutError:
                return None
            status = "" if message.data else (message.headers or {}).get("Status", "")
            if not status or message.reply.startswith("$JS.ACK."):
                return message
            if status == _HEARTBEAT or message.subject != f"{self._inbox}.{self._consumer}":
                continue  # or the last status of an abandoned consumer
            if status not in ("404", "408"):
                return None
            self._wanted = 0

    async def _ask(self) -> None:
        request: dict[str, Any] = {
            "batch": BATCH,
            "expires": EXPIRES_NS,
            "idle_heartbeat": HEARTBEAT_NS,
        }
        self._wanted = BATCH
        await self._api.client.publish(
            f"{self._api.prefix}.CONSUMER.MSG.NEXT.{self._stream}.{self._consumer}",
            json.dumps(request).encode(),
            reply=f"{self._inbox}.{self._consumer}",
        )
