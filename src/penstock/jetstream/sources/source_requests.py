"""Requests of a mirror or source to its origin, and the parser of the reply.

A mirror or source reads its origin through a consumer that it creates over the API, whether the
origin is local or remote: the request and the reply are messages. Names, metadata and headers match
the reference server, so that either server can be the origin of the other. Pure functions: no IO.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from penstock.api.api_levels import REQUIRED_LEVEL_HEADER
from penstock.api.api_subjects import API
from penstock.api.consumer_config import (
    AckPolicy,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
)
from penstock.api.json_codec import encode
from penstock.api.refusals import ApiError
from penstock.api.rules.consumer_defaults import SOURCE_HEARTBEAT_NS
from penstock.base.effects import Send
from penstock.base.json_depth import check_nesting
from penstock.base.sequences import SEQ_MAX
from penstock.base.short_hash import short_hash
from penstock.base.units import SECOND_NS
from penstock.jetstream.streams.publish_headers import STREAM_IDENTITY
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.api.stream_config import StreamSource
    from penstock.jetstream.environment import Environment

SILENCE_NS_MAX: Final = 10 * SECOND_NS
"""A reader repeats its request after this much silence. The origin's consumer has the same inactive
threshold."""
ACK_WAIT_NS: Final = 22 * 3600 * SECOND_NS
INBOX_LENGTH: Final = 8
MIRROR_LEVEL: Final = 4
SOURCE_LEVEL: Final = 5
"""The first API level whose origins report their identity."""


class SourceStart(NamedTuple):
    """Where in the origin to start: a sequence, a time, or (neither) its first message."""

    seq: int = 0
    ts_ns: int = 0


class ConsumerCreated(NamedTuple):
    """The origin has created the consumer."""

    consumer: str
    deliver_subject: str
    delivered_seq: int
    """The consumer starts after this sequence of the origin."""
    pending: int
    acks_by_flow: bool
    identity: str
    """Distinguishes the origin from other streams of the same name; empty if not reported."""


class Copier:
    """Builds the requests of one stream for its mirror or for one of its sources."""

    def __init__(
        self,
        stream: str,
        source: StreamSource,
        environment: Environment,
        *,
        is_mirror: bool,
        has_siblings: bool = False,
    ) -> None:
        """`has_siblings`: the stream has other sources with the same origin."""
        self.stream = stream
        self.source = source
        self._environment = environment
        self._is_mirror = is_mirror
        self._has_siblings = has_siblings

    def answer_inbox(self) -> str:
        """Return a new subject for one reply."""
        return f"$JSC.R.{self._token()}"

    def _token(self) -> str:
        return self._environment.nuid()[-INBOX_LENGTH:]

    def deliver_subject(self) -> str:
        """Return a new subject for the deliveries of one consumer."""
        kind = "M" if self._is_mirror else "S"
        external = self.source.external
        prefix = external.deliver if external is not None and external.deliver else "$JS"
        return f"{prefix}.{kind}.{self._token()}".replace("..", ".")

    def consumer_name(self, index_name: str) -> str:
        """Return the consumer name to request; it stays the same across attempts."""
        parts = (self.stream, self._environment.account, self._environment.domain)
        stable = short_hash(" ".join(part for part in parts if part))
        if self._is_mirror:
            return f"JS_MIRROR_{stable}"
        named = f"{stable} {index_name}" if self._has_siblings else stable
        return f"JS_SRC_{short_hash(named)}"

    def request(
        self, index_name: str, start: SourceStart, identity: str, reply: str, deliver_subject: str
    ) -> Send:
        """Return the message that requests a new consumer, or resets the consumer the configuration
        names."""
        header = self._header(identity)
        given = self.source.consumer
        if given is not None:
            subject = f"CONSUMER.RESET.{self.source.name}.{given.name}"
            return Send(self.api(subject), header=header, reply=reply)
        cfg = self._config(index_name, start, deliver_subject)
        subject = f"CONSUMER.CREATE.{self.source.name}"
        if cfg.filter_subject:
            subject += f".{cfg.name}.{cfg.filter_subject}"
        body = encode(CreateConsumerRequest(stream_name=self.source.name, config=cfg))
        return Send(self.api(subject), body, header, reply)

    def deletion(self, consumer: str) -> Send:
        """Return the message that deletes a consumer; the sender ignores the reply."""
        return Send(self.api(f"CONSUMER.DELETE.{self.source.name}.{consumer}"))

    def api(self, request: str) -> str:
        """Return the subject of an API request to the origin."""
        external = self.source.external
        if external is None:
            return f"{API}.{request}"
        return f"{external.api}.{request}".replace("..", ".")

    def _header(self, identity: str) -> bytes:
        level = MIRROR_LEVEL if self._is_mirror else SOURCE_LEVEL
        header = headers.added(b"", REQUIRED_LEVEL_HEADER.encode(), b"%d" % level)
        if self._is_mirror:
            return header
        return headers.added(header, STREAM_IDENTITY, identity.encode())

    def _config(self, index_name: str, start: SourceStart, deliver_subject: str) -> ConsumerConfig:
        policy = DeliverPolicy.ALL
        if start.seq:
            policy = DeliverPolicy.BY_START_SEQUENCE
        elif start.ts_ns:
            policy = DeliverPolicy.BY_START_TIME
        filters = tuple(each.src for each in self.source.subject_transforms)
        is_single = len(filters) == 1
        return ConsumerConfig(
            name=self.consumer_name(index_name),
            deliver_subject=deliver_subject,
            deliver_policy=policy,
            opt_start_seq=start.seq,
            opt_start_time=start.ts_ns or None,
            ack_policy=AckPolicy.NONE,
            ack_wait=ACK_WAIT_NS,
            max_deliver=1,
            idle_heartbeat=SOURCE_HEARTBEAT_NS,
            flow_control=True,
            direct=True,
            sourcing=True,
            inactive_threshold=SILENCE_NS_MAX,
            metadata=self._metadata(),
            filter_subject=filters[0] if is_single else self.source.filter_subject,
            filter_subjects=() if is_single else filters,
        )

    def _metadata(self) -> dict[str, str]:
        prefix = "_nats.mirror" if self._is_mirror else "_nats.src"
        metadata = {f"{prefix}.stream": self.stream, f"{prefix}.acc": self._environment.account}
        if self._environment.domain:
            metadata[f"{prefix}.domain"] = self._environment.domain
        return metadata


class _ReplyFault(msgspec.Struct):
    code: int = 0
    err_code: int = 0
    description: str = ""


class _Config(msgspec.Struct):
    deliver_subject: str = ""
    ack_policy: str = ""


class _Delivered(msgspec.Struct):
    stream_seq: int = 0


class _Answer(msgspec.Struct):
    error: _ReplyFault | None = None
    name: str = ""
    config: _Config | None = None
    delivered: _Delivered = msgspec.field(default_factory=_Delivered)
    num_pending: int = 0


_ANSWER: Final = msgspec.json.Decoder(_Answer)
NOT_AN_ANSWER: Final = "invalid consumer create response"


def read_answer(header: bytes, payload: bytes) -> ConsumerCreated | ApiError | str:
    """Parse the origin's reply: a consumer, an API error, or an error text if it is unusable."""
    try:
        check_nesting(payload)
        answer = _ANSWER.decode(payload)
    except ValueError:
        return NOT_AN_ANSWER
    if answer.error is not None:
        return ApiError(answer.error.code, answer.error.err_code, answer.error.description)
    if answer.config is None or not answer.name:
        return NOT_AN_ANSWER
    if not 0 <= answer.delivered.stream_seq <= SEQ_MAX:
        return f"its sequences are larger than {SEQ_MAX}"
    return ConsumerCreated(
        consumer=answer.name,
        deliver_subject=answer.config.deliver_subject,
        delivered_seq=answer.delivered.stream_seq,
        pending=answer.num_pending,
        acks_by_flow=answer.config.ack_policy == AckPolicy.FLOW_CONTROL,
        identity=(headers.get(header, STREAM_IDENTITY) or b"").decode(errors="replace"),
    )
