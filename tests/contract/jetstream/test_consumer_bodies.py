"""Bodies of requests about one consumer: what is read leniently, and what is noticed first.

RESET and UNPIN take unknown fields but only one value; PAUSE ignores what is no JSON object; a
consumer that is not there does not answer a RESET at all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.jetstream import API, Refusal

if TYPE_CHECKING:
    from support.assets import JetStream

NO_CONSUMER = Refusal(404, 10014, "consumer not found")
NO_GROUP = Refusal(400, 10160, "Provided priority group does not exist for this consumer")
BAD_GROUP = Refusal(
    400,
    10162,
    "Valid priority group name must match A-Z, a-z, 0-9, -_/=)+ and may not exceed 16 characters",
)


def invalid(text: str) -> Refusal:
    return Refusal(400, 10025, f"invalid JSON: {text}")


@pytest.mark.parametrize(
    ("consumer", "body", "refusal"),
    [
        ("pinned", b'{"group":"g","more":1}', None),
        ("overflow", b'{"group":"g"}', None),
        ("pinned", b'{"group":"other"}', NO_GROUP),
        ("plain", b'{"group":"g"}', NO_GROUP),
        ("plain", b'{"group":"a b"}', BAD_GROUP),
        ("nope", b'{"group":"a b"}', BAD_GROUP),
        ("nope", b'{"group":"g"}', NO_CONSUMER),
        ("nope", b"", invalid("unexpected end of JSON input")),
        ("pinned", b"{}", invalid("consumer group not specified")),
        ("pinned", b"null", invalid("consumer group not specified")),
        ("pinned", b"x", invalid("invalid character 'x' looking for beginning of value")),
    ],
)
def test_group_is_unpinned_by_name(
    jetstream: JetStream, consumer: str, body: bytes, refusal: Refusal | None
) -> None:
    stream = jetstream.stream(storage="memory")
    stream.consumer("pinned", priority_policy="pinned_client", priority_groups=["g"])
    stream.consumer("overflow", priority_policy="overflow", priority_groups=["g"])
    stream.consumer("plain")
    api = f"CONSUMER.UNPIN.{stream.name}.{consumer}"
    if refusal is None:
        jetstream.done(api, body)
    else:
        assert jetstream.refused(api, body) == refusal


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", ""),
        (b"{}", ""),
        (b"null", ""),
        (b'{"more":1}', ""),
        (b" ", "unexpected end of JSON input"),
        (b'{"seq":1', "unexpected end of JSON input"),
        (b'{"seq":1}x', "invalid character 'x' after top-level value"),
        (
            b'{"seq":"a"}',
            "json: cannot unmarshal string into Go struct field JSApiConsumerResetRequest.seq"
            " of type uint64",
        ),
        (
            b"[]",
            "json: cannot unmarshal array into Go value of type server.JSApiConsumerResetRequest",
        ),
    ],
)
def test_reset_body_is_one_json_value(jetstream: JetStream, body: bytes, fault: str) -> None:
    stream = jetstream.stream(storage="memory")
    consumer = stream.consumer()
    api = f"CONSUMER.RESET.{stream.name}.{consumer.name}"
    if fault:
        assert jetstream.refused(api, body) == invalid(fault)
    else:
        jetstream.done(api, body)


def test_reset_of_missing_consumer_gets_no_reply(jetstream: JetStream) -> None:
    stream = jetstream.stream(storage="memory")
    inbox = jetstream.subscribe()
    for name in (f"{stream.name}.nope", "nope.nope"):
        jetstream.publish(f"{API}CONSUMER.RESET.{name}", b"", reply=inbox.subject)
    stream.info()
    assert inbox.waiting() == []


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (b"", ""),
        (b"garbage", ""),
        (b'{"more":1}', 'json: unknown field "more"'),
        (b'{"pause_until":', "unexpected EOF"),
    ],
)
def test_pause_is_read_if_it_is_json(jetstream: JetStream, body: bytes, fault: str) -> None:
    stream = jetstream.stream(storage="memory")
    consumer = stream.consumer()
    api = f"CONSUMER.PAUSE.{stream.name}.{consumer.name}"
    if fault:
        assert jetstream.refused(api, body) == invalid(fault)
        return
    answer = jetstream.done(api, body)
    assert (answer["paused"], answer["pause_until"]) == (False, "0001-01-01T00:00:00Z")
