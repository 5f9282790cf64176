"""Streams that count: every message is an increment, what is stored is the sum."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from support.jetstream import Refusal, refusal
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream

MISSING = Refusal(400, 10169, "message counter increment is missing")
PAYLOAD = Refusal(400, 10170, "message counter has payload")
INVALID = Refusal(400, 10171, "message counter increment is invalid")
LARGE = 99_999_999_999_999_999_999_999


def test_increments_are_summed_per_subject(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    total = 0
    for seq, step in enumerate(["1", "+5", "-3", "0", str(LARGE), "-10"], 1):
        total += int(step)
        ack = stream.publish("a", Nats_Incr=step)
        assert ack == {"stream": stream.name, "seq": seq, "val": str(total)}
    assert stream.publish("b", Nats_Incr="-7")["val"] == "-7"


def test_body_is_sum_and_header_keeps_increment(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    stream.publish("a", Nats_Incr="2")
    stream.publish("a", Nats_Incr="+40", Other="kept")
    message = stream.get(seq=2)
    assert base64.b64decode(message["data"]) == b'{"val":"42"}'
    assert base64.b64decode(message["hdrs"]) == b"NATS/1.0\r\nNats-Incr: +40\r\nOther: kept\r\n\r\n"


def test_publish_ack_carries_sum_as_text(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    answer = jetstream.request(stream.subject("a"), b"", {"Nats-Incr": "7"})
    assert answer.payload == b'{"stream":"%s","seq":1,"val":"7"}' % stream.name.encode()


@pytest.mark.parametrize(
    ("headers", "payload", "expected"),
    [
        ({"Nats-Incr": "x"}, b"", INVALID),
        ({"Nats-Incr": "1.5"}, b"", INVALID),
        ({"Nats-Incr": "1e3"}, b"", INVALID),
        ({"Nats-Incr": "+"}, b"", INVALID),
        ({"Nats-Incr": "--1"}, b"", INVALID),
        ({"Nats-Incr": "+-1"}, b"", INVALID),
        ({"Nats-Incr": ""}, b"", MISSING),
        ({"Other": "1"}, b"", MISSING),
        ({"Other": "1"}, b"x", MISSING),
        ({"Nats-Incr": "1"}, b"x", PAYLOAD),
        ({"Nats-Incr": "x"}, b"x", INVALID),
        ({"Nats-Incr": "1", "Nats-Rollup": "sub"}, b"", INVALID),
        ({"Nats-Incr": "1", "Nats-Expected-Last-Sequence": "1"}, b"", INVALID),
        ({"Nats-Incr": "1", "Nats-Expected-Last-Subject-Sequence": "1"}, b"", INVALID),
        ({"Nats-Incr": "1", "Nats-Expected-Last-Msg-Id": "1"}, b"", INVALID),
        ({"Nats-Incr": "1", "Nats-Expected-Stream": "x"}, b"", INVALID),
    ],
)
def test_invalid_increment_is_refused(
    jetstream: JetStream, headers: dict[str, str], payload: bytes, expected: Refusal
) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    stream.publish("a", Nats_Incr="1")
    assert refusal(jetstream.publish_ack(stream.subject("a"), payload, headers)) == expected
    assert stream.publish("a", Nats_Incr="1")["val"] == "2"


def test_counter_stream_refuses_message_without_header(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    assert stream.refused("a", b"") == MISSING


def test_increment_is_counted_once_per_id(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    stream.publish("a", Nats_Incr="1", Nats_Msg_Id="1")
    again = stream.publish("a", Nats_Incr="1", Nats_Msg_Id="1")
    assert again == {"stream": stream.name, "seq": 1, "duplicate": True}
    assert stream.publish("a", Nats_Incr="1")["val"] == "2"


def test_purge_resets_counter(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True)
    stream.publish("a", Nats_Incr="5")
    stream.purge(filter=stream.subject("a"))
    assert stream.publish("a", Nats_Incr="1")["val"] == "1"


def test_only_the_last_message_of_counter_is_needed(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_msg_counter=True, max_msgs_per_subject=1)
    for _ in range(5):
        stream.publish("a", Nats_Incr="2")
    assert stream.sequences() == [5]
    assert stream.publish("a", Nats_Incr="1")["val"] == "11"


def test_sourced_counters_are_summed(jetstream: JetStream) -> None:
    sources = [jetstream.stream(allow_msg_counter=True) for _ in range(2)]
    for source, step in zip(sources, ("3", "4"), strict=True):
        source.publish("hits", Nats_Incr=step)
    aggregate = jetstream.stream(
        sources=[
            {
                "name": one.name,
                "subject_transforms": [{"src": f"{one.name}.>", "dest": "total.>"}],
            }
            for one in sources
        ],
        allow_msg_counter=True,
        allow_direct=True,
    )

    def total() -> bytes:
        found = jetstream.call(f"STREAM.MSG.GET.{aggregate.name}", {"last_by_subj": "total.hits"})
        return base64.b64decode(found.get("message", {}).get("data", ""))

    until(lambda: total() == b'{"val":"7"}', "both are counted")
    sources[0].publish("hits", Nats_Incr="10")
    until(lambda: total() == b'{"val":"17"}', "the increment is counted")
    kept = base64.b64decode(aggregate.get(last_by_subj="total.hits")["hdrs"])
    assert b"Nats-Counter-Sources:" in kept
