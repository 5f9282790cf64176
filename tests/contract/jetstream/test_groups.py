"""Who is served when several pull from one consumer: overflow, pins, priorities; and pauses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND, stream_sequences
from support.jetstream import API, Refusal, encode, encode_body
from support.servers import until

if TYPE_CHECKING:
    from support.assets import Consumer, JetStream, Stream
    from support.jetstream import Message, Subscription

SHORT = 50 * MILLISECOND
LONG = 10 * SECOND
FAR = "2099-01-01T00:00:00Z"
ZERO_TIME = "0001-01-01T00:00:00Z"
TIMEOUT = "408 Request Timeout"
NO_GROUP = Refusal(400, 10160, "Provided priority group does not exist for this consumer")


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    made = jetstream.stream()
    made.fill("a", "b", "c", "d", "e")
    return made


def grouped(stream: Stream, policy: str, **config: Any) -> Consumer:
    return stream.consumer(
        ack_policy="explicit", priority_groups=["g"], priority_policy=policy, **config
    )


def ask(consumer: Consumer, expires: int = SHORT, **body: Any) -> Subscription:
    return consumer.pull(batch=body.pop("batch", 1), group="g", expires=expires, **body)


def pin_of(message: Message) -> str:
    return message.headers["Nats-Pin-Id"]


# -- all groups


@pytest.mark.parametrize(
    ("policy", "body", "status"),
    [
        ("overflow", {}, "400 Bad Request - Priority Group missing"),
        ("pinned_client", {}, "400 Bad Request - Priority Group missing"),
        ("prioritized", {}, "400 Bad Request - Priority Group missing"),
        ("overflow", {"group": "x"}, "400 Bad Request - Invalid Priority Group"),
        ("prioritized", {"group": "x"}, "400 Bad Request - Invalid Priority Group"),
        (
            "pinned_client",
            {"group": "g", "min_pending": 3},
            "400 Bad Request - Not a Overflow Priority consumer",
        ),
        (
            "overflow",
            {"group": "g", "id": "x"},
            "400 Bad Request - Not a Pinned Client Priority consumer",
        ),
        (
            "prioritized",
            {"group": "g", "priority": 10},
            "400 Bad Request - Priority must be between 0 and 9",
        ),
    ],
)
def test_pull_request_must_match_group_policy(
    stream: Stream, policy: str, body: dict[str, Any], status: str
) -> None:
    consumer = grouped(stream, policy)
    answer = stream.client.request(
        f"{API}CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}", {"no_wait": True, **body}
    )
    assert answer.header == f"NATS/1.0 {status}\r\n\r\n".encode()


@pytest.mark.parametrize("policy", ["overflow", "pinned_client", "prioritized"])
def test_info_shows_group(stream: Stream, policy: str) -> None:
    consumer = grouped(stream, policy)
    assert consumer.info()["priority_groups"] == [{"group": "g", "pinned_ts": ZERO_TIME}]
    config = consumer.created["config"]
    assert config["metadata"]["_nats.req.level"] in ("1", "2")
    assert config["priority_policy"] == policy


# -- overflow


@pytest.mark.parametrize(
    ("body", "served"),
    [
        ({}, True),
        ({"min_pending": 4}, True),
        ({"min_pending": 5}, False),
        ({"min_ack_pending": 1}, True),
        ({"min_ack_pending": 2}, False),
        ({"min_pending": 99, "min_ack_pending": 1}, True),
    ],
)
def test_overflow_requests_are_served_above_min_pending(
    stream: Stream, body: dict[str, int], served: bool
) -> None:
    consumer = grouped(stream, "overflow")
    ask(consumer, LONG).next()
    answer = ask(consumer, **body).next()
    if served:
        assert stream_sequences([answer]) == [2]
    else:
        assert answer.status == TIMEOUT


# -- pinned clients


def test_first_client_is_pinned(stream: Stream) -> None:
    consumer = grouped(stream, "pinned_client")
    first, second = ask(consumer, LONG, batch=2).take(2)
    assert pin_of(first) == pin_of(second)
    assert first.header == f"NATS/1.0\r\nNats-Pin-Id: {pin_of(first)}\r\n\r\n".encode()
    [group] = consumer.info()["priority_groups"]
    assert group["pinned_client_id"] == pin_of(first)
    assert group["pinned_ts"] != ZERO_TIME


def test_other_clients_wait_while_one_is_pinned(stream: Stream) -> None:
    consumer = grouped(stream, "pinned_client")
    pin = pin_of(ask(consumer, LONG).next())
    assert ask(consumer).next().status == TIMEOUT
    assert stream_sequences([ask(consumer, LONG, id=pin).next()]) == [2]


def test_wrong_pin_is_refused(stream: Stream) -> None:
    consumer = grouped(stream, "pinned_client")
    ask(consumer, LONG).next()
    answer = ask(consumer, LONG, id="wrong").next()
    assert answer.header == b"NATS/1.0 423 Nats-Pin-Id mismatch\r\n\r\n"


def test_stale_pin_is_refused_when_messages_are_available(stream: Stream) -> None:
    consumer = grouped(stream, "pinned_client")
    answer = ask(consumer, LONG, id="old").next()
    assert answer.status == "423 Nats-Wrong-Pin-Id"
    assert answer.fields == [("Nats-Pending-Messages", "1"), ("Nats-Pending-Bytes", "0")]


def test_unpin_lets_another_client_take_over(stream: Stream) -> None:
    consumer = grouped(stream, "pinned_client")
    old = pin_of(ask(consumer, LONG).next())
    waiting = ask(consumer, LONG)
    answer = consumer.call("UNPIN", {"group": "g"})
    assert answer == {"type": "io.nats.jetstream.api.v1.consumer_unpin_response"}
    message = waiting.next()
    assert stream_sequences([message]) == [2]
    assert pin_of(message) != old
    assert ask(consumer, LONG, id=old).next().status == "423 Nats-Pin-Id mismatch"


def test_pin_expires_without_requests(stream: Stream) -> None:
    consumer = grouped(stream, "pinned_client", priority_timeout=SECOND)
    ask(consumer, LONG).next()
    assert stream_sequences([ask(consumer, LONG).next()]) == [2]


@pytest.mark.parametrize(
    ("body", "refusal"),
    [
        ({"group": "x"}, NO_GROUP),
        ({"group": ""}, Refusal(400, 10025, "invalid JSON: consumer group not specified")),
        ({}, Refusal(400, 10025, "invalid JSON: consumer group not specified")),
    ],
)
def test_only_group_can_be_unpinned(stream: Stream, body: dict[str, str], refusal: Refusal) -> None:
    assert grouped(stream, "pinned_client").refused("UNPIN", body) == refusal


def test_consumer_without_groups_has_nothing_to_unpin(stream: Stream) -> None:
    assert stream.consumer().refused("UNPIN", {"group": "g"}) == NO_GROUP


# -- priorities


def test_lowest_priority_is_served_first(stream: Stream) -> None:
    consumer = grouped(stream, "prioritized", deliver_policy="new")
    requests = [ask(consumer, LONG, priority=priority) for priority in (5, 1, 0)]
    until(lambda: consumer.info()["num_waiting"] == 3, "all wait")
    stream.fill("x", "y", "z")
    assert [stream_sequences([one.next()]) for one in requests] == [[8], [7], [6]]


def test_equal_priorities_are_served_in_turn(stream: Stream) -> None:
    consumer = grouped(stream, "prioritized", deliver_policy="new")
    requests = [ask(consumer, LONG, priority=2) for _ in range(3)]
    until(lambda: consumer.info()["num_waiting"] == 3, "all wait")
    stream.fill("x", "y", "z")
    assert [stream_sequences([one.next()]) for one in requests] == [[6], [7], [8]]


def test_priorities_decide_between_requests_that_arrive_together(stream: Stream) -> None:
    consumer = grouped(stream, "prioritized")
    client = stream.client
    low, high = client.subscribe(), client.subscribe()
    name = f"{API}CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}"
    client.send(
        b"".join(
            encode(name, encode_body({"batch": 2, "group": "g", "priority": priority}), inbox)
            for priority, inbox in ((1, low.subject), (0, high.subject))
        )
    )
    assert stream_sequences(high.take(2)) == [1, 2]
    assert stream_sequences(low.take(2)) == [3, 4]


# -- pauses


def test_remaining_time_of_pause_fits_64_bits(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit")
    paused = consumer.call("PAUSE", {"pause_until": "9999-12-31T23:59:59Z"})
    assert paused["pause_remaining"] == 2**63 - 1
    assert consumer.info()["pause_remaining"] == 2**63 - 1


def test_pause_stops_delivery_until_it_is_lifted(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit")
    paused = consumer.call("PAUSE", {"pause_until": FAR})
    assert (paused["paused"], paused["pause_until"]) == (True, FAR)
    assert paused["pause_remaining"] > 0
    info = consumer.info()
    assert info["paused"] is True
    assert info["pause_remaining"] > 0
    assert info["config"]["pause_until"] == FAR
    assert consumer.available() == []
    lifted = consumer.call("PAUSE")
    assert lifted == {
        "type": "io.nats.jetstream.api.v1.consumer_pause_response",
        "paused": False,
        "pause_until": ZERO_TIME,
    }
    assert "paused" not in consumer.info()
    assert len(consumer.available()) == 5


@pytest.mark.parametrize(
    ("body", "until_time"),
    [
        (b"{}", ZERO_TIME),
        (b"garbage", ZERO_TIME),
        (b'{"pause_until":null}', ZERO_TIME),
        (b'{"pause_until":"2020-01-01T00:00:00Z"}', "2020-01-01T00:00:00Z"),
    ],
)
def test_past_pause_time_is_no_pause(stream: Stream, body: bytes, until_time: str) -> None:
    consumer = stream.consumer(ack_policy="explicit")
    consumer.call("PAUSE", {"pause_until": FAR})
    answer = consumer.call("PAUSE", body)
    assert (answer["paused"], answer["pause_until"]) == (False, until_time)


def test_pause_raises_required_api_level(stream: Stream) -> None:
    consumer = stream.consumer()

    def level() -> str:
        needed: str = consumer.info()["config"]["metadata"]["_nats.req.level"]
        return needed

    assert level() == "0"
    consumer.call("PAUSE", {"pause_until": FAR})
    assert level() == "1"
    consumer.call("PAUSE")
    assert level() == "0"


@pytest.mark.parametrize("text", ["x", ""])
def test_pause_needs_time(stream: Stream, text: str) -> None:
    refusal = stream.consumer().refused("PAUSE", {"pause_until": text})
    assert refusal[:2] == (400, 10025)


def test_consumer_can_be_created_paused(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", pause_until=FAR)
    assert consumer.created["paused"] is True
    assert consumer.created["config"]["metadata"]["_nats.req.level"] == "1"
    inbox = consumer.pull(batch=1, expires=4 * SHORT, idle_heartbeat=SHORT)
    assert inbox.next().status == "100 Idle Heartbeat"


def test_update_keeps_pause(stream: Stream) -> None:
    stream.consumer("d", ack_policy="explicit")
    updated = stream.consumer("d", ack_policy="explicit", pause_until=FAR)
    assert "paused" not in updated.info()


def test_pause_ends_at_its_time(stream: Stream) -> None:
    soon = datetime.now(UTC) + timedelta(milliseconds=200)
    consumer = stream.consumer(ack_policy="explicit", pause_until=soon.isoformat())
    assert stream_sequences(consumer.fetch(2)) == [1, 2]
