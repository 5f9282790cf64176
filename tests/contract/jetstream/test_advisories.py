"""Advisories: events of streams, consumers and messages, published to subscribers."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND, unique
from support.schemas import check_answer

if TYPE_CHECKING:
    from support.assets import Consumer, JetStream, Stream
    from support.jetstream import Subscription

PREFIX = "$JS.EVENT.ADVISORY."
KIND = "io.nats.jetstream.advisory.v1."
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
ID = re.compile(r"[0-9A-Za-z]{22}")
SHORT = 100 * MILLISECOND


def listen(jetstream: JetStream, what: str) -> Subscription:
    return jetstream.subscribe(PREFIX + what)


def heard(inbox: Subscription, subject: str = "") -> dict[str, Any]:
    """The next advisory, without what differs each time."""
    message = inbox.next()
    if subject:
        assert message.subject == PREFIX + subject
    assert (message.reply, message.header) == ("", b"")
    event: dict[str, Any] = message.json
    check_answer(event)
    assert ID.fullmatch(event.pop("id"))
    assert TIME.fullmatch(event.pop("timestamp"))
    return event


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    return jetstream.stream()


@pytest.fixture
def consumer(stream: Stream) -> Consumer:
    return stream.consumer(ack_policy="explicit")


def test_stream_lifecycle_has_advisories(jetstream: JetStream) -> None:
    name = unique("S")
    inbox = listen(jetstream, f"STREAM.*.{name}")
    stream = jetstream.stream(name)
    stream.update(description="x")
    stream.delete()
    for verb, action in (("CREATED", "create"), ("UPDATED", "modify"), ("DELETED", "delete")):
        assert heard(inbox, f"STREAM.{verb}.{stream.name}") == {
            "type": KIND + "stream_action",
            "stream": stream.name,
            "action": action,
        }


def test_creating_equal_stream_again_has_no_advisory(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    inbox = listen(jetstream, f"STREAM.*.{stream.name}")
    jetstream.stream(stream.name)
    stream.delete()
    assert heard(inbox)["action"] == "delete"


def test_consumer_lifecycle_has_advisories(stream: Stream) -> None:
    inbox = listen(stream.client, f"CONSUMER.*.{stream.name}.>")
    consumer = stream.consumer()
    consumer.delete()
    for verb, action in (("CREATED", "create"), ("DELETED", "delete")):
        assert heard(inbox, f"CONSUMER.{verb}.{stream.name}.{consumer.name}") == {
            "type": KIND + "consumer_action",
            "stream": stream.name,
            "consumer": consumer.name,
            "action": action,
        }


def test_deleting_stream_sends_advisories_of_its_consumers(
    stream: Stream, consumer: Consumer
) -> None:
    inbox = listen(stream.client, f"CONSUMER.DELETED.{stream.name}.>")
    stream.delete()
    assert heard(inbox)["consumer"] == consumer.name


def test_nak_has_advisory(stream: Stream, consumer: Consumer) -> None:
    inbox = listen(stream.client, f"CONSUMER.MSG_NAKED.{stream.name}.{consumer.name}")
    stream.publish("a")
    consumer.answer(consumer.fetch(1)[0], b"-NAK")
    assert heard(inbox) == {
        "type": KIND + "nak",
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 1,
        "stream_seq": 1,
        "deliveries": 1,
    }


@pytest.mark.parametrize(
    ("payload", "more"),
    [(b"+TERM", {}), (b"+TERM it is broken", {"reason": "it is broken"})],
)
def test_termination_advisory_has_reason(
    stream: Stream, consumer: Consumer, payload: bytes, more: dict[str, str]
) -> None:
    inbox = listen(stream.client, f"CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}")
    stream.publish("a")
    consumer.answer(consumer.fetch(1)[0], b"-NAK")
    consumer.answer(consumer.fetch(1)[0], payload)
    assert heard(inbox) == {
        "type": KIND + "terminated",
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 2,
        "stream_seq": 1,
        "deliveries": 2,
        **more,
    }


def test_deleting_ack_pending_message_has_advisory(stream: Stream, consumer: Consumer) -> None:
    inbox = listen(stream.client, f"CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}")
    stream.publish("a")
    consumer.fetch(1)
    stream.remove(1)
    event = heard(inbox)
    assert event["reason"] == "Unacknowledged message was deleted"
    assert (event["stream_seq"], event["deliveries"]) == (1, 1)


@pytest.mark.parametrize(("scope", "told"), [("all", [1]), ("sub", [1, 3])])
def test_rollup_reports_removal_by_limit_and_of_single_messages(
    jetstream: JetStream, scope: str, told: list[int]
) -> None:
    stream = jetstream.stream(max_msgs_per_subject=2, allow_rollup_hdrs=True)
    consumer = stream.consumer(ack_policy="explicit")
    inbox = listen(stream.client, f"CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}")
    stream.fill("a", "b", "a")
    consumer.pull(batch=3).take(3)
    stream.publish("a", Nats_Rollup=scope)  # the third on its subject: the limit removes 1
    assert sorted(heard(inbox)["stream_seq"] for _ in told) == told
    stream.info()
    assert inbox.waiting() == []


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, []),
        ({"seq": 2}, []),
        ({"seq": 3}, []),
        ({"keep": 1}, []),
        ({"keep": 2}, [1]),
        ({"filter": "a"}, []),
        ({"filter": "b"}, [2]),
        ({"filter": "a", "keep": 1}, [1]),
        ({"filter": "a", "seq": 2}, [1]),
    ],
)
def test_purge_reports_message_only_if_it_removed_one(
    stream: Stream, consumer: Consumer, how: dict[str, Any], told: list[int]
) -> None:
    inbox = listen(stream.client, f"CONSUMER.MSG_TERMINATED.{stream.name}.{consumer.name}")
    stream.fill("a", "b", "a")
    consumer.pull(batch=3).take(3)
    if "filter" in how:
        how = {**how, "filter": stream.subject(how["filter"])}
    stream.purge(**how)
    assert [heard(inbox)["stream_seq"] for _ in told] == told
    stream.info()
    assert inbox.waiting() == []


def test_max_deliver_advisory_is_sent_once(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", ack_wait=SHORT, max_deliver=2)
    inbox = listen(stream.client, f"CONSUMER.MAX_DELIVERIES.{stream.name}.{consumer.name}")
    stream.publish("a")
    for _ in range(2):
        consumer.fetch(1)
    consumer.pull(expires=10 * SECOND)
    assert heard(inbox) == {
        "type": KIND + "max_deliver",
        "stream": stream.name,
        "consumer": consumer.name,
        "stream_seq": 1,
        "deliveries": 2,
    }
    stream.publish("b")
    assert inbox.waiting() == []


def test_acks_can_be_sampled(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", sample_freq="100%")
    subject = f"$JS.EVENT.METRIC.CONSUMER.ACK.{stream.name}.{consumer.name}"
    inbox = stream.client.subscribe(subject)
    stream.publish("a")
    consumer.answer(consumer.fetch(1)[0])
    event = inbox.next().json
    check_answer(event)
    assert event["ack_time"] > 0
    for name in ("id", "timestamp", "ack_time"):
        del event[name]
    assert event == {
        "type": "io.nats.jetstream.metric.v1.consumer_ack",
        "stream": stream.name,
        "consumer": consumer.name,
        "consumer_seq": 1,
        "stream_seq": 1,
        "deliveries": 1,
    }


def test_pause_has_advisories(stream: Stream, consumer: Consumer) -> None:
    inbox = listen(stream.client, f"CONSUMER.PAUSE.{stream.name}.{consumer.name}")
    consumer.call("PAUSE", {"pause_until": "2099-01-01T00:00:00Z"})
    consumer.call("PAUSE")
    same = {
        "type": KIND + "consumer_pause",
        "stream": stream.name,
        "consumer": consumer.name,
    }
    assert heard(inbox) == {**same, "paused": True, "pause_until": "2099-01-01T00:00:00Z"}
    assert heard(inbox) == {**same, "paused": False, "pause_until": "0001-01-01T00:00:00Z"}


def test_consumer_created_paused_has_pause_advisory(stream: Stream) -> None:
    inbox = listen(stream.client, f"CONSUMER.PAUSE.{stream.name}.*")
    stream.consumer("past", pause_until="2020-01-01T00:00:00Z")
    stream.consumer("ahead", pause_until="2099-01-01T00:00:00Z")
    assert heard(inbox) == {
        "type": KIND + "consumer_pause",
        "stream": stream.name,
        "consumer": "ahead",
        "paused": True,
        "pause_until": "2099-01-01T00:00:00Z",
    }


@pytest.mark.parametrize("policy", ["pinned_client", "overflow", "prioritized"])
def test_unpin_has_advisory_even_without_pinned_client(stream: Stream, policy: str) -> None:
    consumer = stream.consumer(ack_policy="explicit", priority_groups=["g"], priority_policy=policy)
    inbox = listen(stream.client, f"CONSUMER.UNPINNED.{stream.name}.{consumer.name}")
    consumer.call("UNPIN", {"group": "g"})
    told = heard(inbox)
    assert (told["group"], told["reason"]) == ("g", "admin")


def test_pin_has_advisory(stream: Stream) -> None:
    consumer = stream.consumer(
        ack_policy="explicit", priority_groups=["g"], priority_policy="pinned_client"
    )
    pinned = listen(stream.client, f"CONSUMER.PINNED.{stream.name}.{consumer.name}")
    unpinned = listen(stream.client, f"CONSUMER.UNPINNED.{stream.name}.{consumer.name}")
    stream.publish("a")
    pin = consumer.pull(group="g").next().headers["Nats-Pin-Id"]
    consumer.call("UNPIN", {"group": "g"})
    same = {
        "account": "$G",
        "stream": stream.name,
        "consumer": consumer.name,
        "group": "g",
    }
    assert heard(pinned) == {"type": KIND + "consumer_group_pinned", **same, "pinned_id": pin}
    assert heard(unpinned) == {
        "type": KIND + "consumer_group_unpinned",
        **same,
        "reason": "admin",
    }


def test_abandoned_batch_has_advisory(jetstream: JetStream) -> None:
    stream = jetstream.stream(allow_atomic=True)
    inbox = listen(jetstream, f"STREAM.BATCH_ABANDONED.{stream.name}")
    for seq in ("1", "4"):
        fields = {"Nats-Batch-Id": "x", "Nats-Batch-Sequence": seq}
        jetstream.request(stream.subject("a"), b"", fields)
    event = heard(inbox)
    assert event == {
        "type": KIND + "stream_batch_abandoned",
        "stream": stream.name,
        "batch": "x",
        "reason": "incomplete",
    }


# -- audit


def audited(jetstream: JetStream, inbox: Subscription, api: str) -> dict[str, Any]:
    """The audit of a request, among those of others on the same server."""
    event = heard(inbox, "API")
    while event["subject"] != f"$JS.API.{api}":
        event = heard(inbox, "API")
    return event


def test_every_api_request_is_audited_with_its_reply(jetstream: JetStream) -> None:
    inbox = listen(jetstream, "API")
    stream = jetstream.stream()
    event = audited(jetstream, inbox, f"STREAM.CREATE.{stream.name}")
    assert event["type"] == KIND + "api_audit"
    assert event["server"] == jetstream.info["server_id"]
    assert '"name": "' + stream.name in event["request"]
    assert '"did_create":true' in event["response"]
    client = event["client"]
    assert (client["acc"], client["kind"], client["client_type"]) == ("$G", "Client", "nats")
    assert client["id"] == jetstream.info["client_id"]
    assert client["rtt"] > 0


def test_request_of_server_itself_is_audited_with_its_account(jetstream: JetStream) -> None:
    inbox = listen(jetstream, "API")
    origin = jetstream.stream()
    jetstream.stream(mirror={"name": origin.name})
    event = audited(jetstream, inbox, f"CONSUMER.CREATE.{origin.name}")
    assert (event["client"]["acc"], event["client"]["kind"]) == ("$G", "JetStream")


def test_refusal_is_audited_and_empty_request_left_out(jetstream: JetStream) -> None:
    inbox = listen(jetstream, "API")
    jetstream.call("STREAM.INFO.nope")
    event = audited(jetstream, inbox, "STREAM.INFO.nope")
    assert "request" not in event
    assert '"err_code":10059' in event["response"]


def test_reading_message_is_audited_only_when_it_fails(stream: Stream) -> None:
    inbox = listen(stream.client, "API")
    stream.publish("a")
    stream.get(seq=1)
    api = f"STREAM.MSG.GET.{stream.name}"
    stream.client.refused(api, {"seq": 7})
    event = audited(stream.client, inbox, api)
    assert event["request"] == '{"seq": 7}'
