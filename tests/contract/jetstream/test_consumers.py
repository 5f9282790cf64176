"""The life of a consumer: created in three ways, described, updated, listed, deleted; where it
begins and what it selects.

Which configurations are refused is in test_consumer_config.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import MILLISECOND, SECOND, ack_fields, stream_sequences
from support.jetstream import API, Refusal
from support.servers import until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream

KIND = "io.nats.jetstream.api.v1."
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
NO_CONSUMER = Refusal(404, 10014, "consumer not found")
NO_STREAM = Refusal(404, 10059, "stream not found")
EXISTS = Refusal(400, 10148, "consumer already exists")
MISSING = Refusal(400, 10149, "consumer does not exist")
OTHER_STREAM = Refusal(400, 10056, "stream name in subject does not match request")
OTHER_NAME = Refusal(400, 10017, "consumer name in subject does not match durable name in request")
OTHER_FILTER = Refusal(
    400, 10131, "Consumer create request did not match filtered subject from create subject"
)
MANY_FILTERS = Refusal(
    400, 10137, "consumer with multiple subject filters cannot use subject based API"
)
NOT_DURABLE = Refusal(400, 10018, "consumer expected to be durable but a durable name was not set")
NOT_EPHEMERAL = Refusal(
    400, 10020, "consumer expected to be ephemeral but a durable name was set in request"
)
PAST = "2020-01-01T00:00:00Z"
FUTURE = "2099-01-01T00:00:00Z"
STARTED = {"consumer_seq": 0, "stream_seq": 0}


@pytest.fixture
def stream(jetstream: JetStream) -> Stream:
    """Messages a b a c b."""
    made = jetstream.stream()
    made.fill("a", "b", "a", "c", "b")
    return made


def create(stream: Stream, form: str, config: dict[str, Any], **more: Any) -> Any:
    """The answer to a creation over a form such as `CREATE.{s}.name`."""
    filled = {
        key: value.format(s=stream.name) if isinstance(value, str) else value
        for key, value in config.items()
    }
    body = {"stream_name": stream.name, "config": filled, **more}
    return stream.client.call(f"CONSUMER.{form.format(s=stream.name)}", body)


# -- created


def test_new_durable_consumer_is_described_in_full(stream: Stream) -> None:
    created = stream.consumer("d", ack_policy="explicit").created
    assert TIME.fullmatch(created.pop("created"))
    assert TIME.fullmatch(created.pop("ts"))
    version = stream.client.info["version"]
    assert created == {
        "type": KIND + "consumer_create_response",
        "stream_name": stream.name,
        "name": "d",
        "config": {
            "durable_name": "d",
            "name": "d",
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": 30 * SECOND,
            "max_deliver": -1,
            "replay_policy": "instant",
            "max_waiting": 512,
            "max_ack_pending": 1000,
            "num_replicas": 0,
            "metadata": {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": version},
        },
        "delivered": STARTED,
        "ack_floor": STARTED,
        "num_ack_pending": 0,
        "num_redelivered": 0,
        "num_waiting": 0,
        "num_pending": 5,
    }
    assert [*created["config"]] == [
        "durable_name",
        "name",
        "deliver_policy",
        "ack_policy",
        "ack_wait",
        "max_deliver",
        "replay_policy",
        "max_waiting",
        "max_ack_pending",
        "num_replicas",
        "metadata",
    ]


def test_ephemeral_consumer_gets_name_of_eight_letters(stream: Stream) -> None:
    created = create(stream, "CREATE.{s}", {})
    assert re.fullmatch("[0-9A-Za-z]{8}", created["name"])
    assert "name" not in created["config"]
    assert created["config"]["inactive_threshold"] == 5 * SECOND
    assert created["config"]["ack_policy"] == "none"


@pytest.mark.parametrize(
    ("form", "config", "name"),
    [
        ("CREATE.{s}", {"name": "x"}, "x"),
        ("CREATE.{s}.x", {}, "x"),
        ("CREATE.{s}.x", {"name": "x"}, "x"),
        ("CREATE.{s}.x", {"name": "other"}, "x"),
        ("CREATE.{s}.x", {"durable_name": "x"}, "x"),
        ("CREATE.{s}.x.{s}.a", {"filter_subject": "{s}.a"}, "x"),
        ("CREATE.{s}.x.{s}.>", {"filter_subject": "{s}.>"}, "x"),
        ("DURABLE.CREATE.{s}.x", {"durable_name": "x"}, "x"),
    ],
)
def test_consumer_is_created_by_name(
    stream: Stream, form: str, config: dict[str, Any], name: str
) -> None:
    created = create(stream, form, config)
    assert created["name"] == created["config"]["name"] == name
    assert ("durable_name" in created["config"]) is ("durable_name" in config)


@pytest.mark.parametrize(
    ("form", "config", "refusal"),
    [
        ("CREATE.{s}", {"durable_name": "x"}, NOT_EPHEMERAL),
        ("CREATE.{s}.x", {"durable_name": "y"}, OTHER_NAME),
        ("CREATE.{s}.x.{s}.a", {"filter_subject": "{s}.b"}, OTHER_FILTER),
        ("CREATE.{s}.x.{s}.a", {}, OTHER_FILTER),
        ("CREATE.{s}.x.{s}.a", {"filter_subjects": ["a"]}, MANY_FILTERS),
        ("CREATE.{s}.x.{s}.a", {"filter_subjects": ["a", "b"]}, MANY_FILTERS),
        ("DURABLE.CREATE.{s}.x", {}, NOT_DURABLE),
        ("DURABLE.CREATE.{s}.x", {"durable_name": "y"}, OTHER_NAME),
        ("CREATE.other.x", {}, OTHER_STREAM),
    ],
)
def test_subject_and_request_must_agree(
    stream: Stream, form: str, config: dict[str, Any], refusal: Refusal
) -> None:
    assert Refusal(**create(stream, form, config)["error"]) == refusal


def test_consumer_needs_stream(jetstream: JetStream) -> None:
    body = {"stream_name": "nope", "config": {}}
    assert jetstream.refused("CONSUMER.CREATE.nope.x", body) == NO_STREAM


@pytest.mark.parametrize(
    ("existing", "action", "config", "refusal"),
    [
        (True, "", {}, None),
        (True, "create", {}, EXISTS),
        (True, "create", {"description": "x"}, EXISTS),
        (True, "update", {"description": "x"}, None),
        (True, "", {"description": "x"}, None),
        (False, "create", {}, None),
        (False, "", {}, None),
        (False, "update", {}, MISSING),
        (
            True,
            "update",
            {"ack_policy": "explicit"},
            Refusal(500, 10012, "ack policy can not be updated"),
        ),
        (
            True,
            "unknown",
            {},
            Refusal(400, 10025, 'invalid JSON: unknown consumer action: "unknown"'),
        ),
    ],
)
def test_action_field_decides_between_create_and_update(
    stream: Stream, existing: bool, action: str, config: dict[str, Any], refusal: Refusal | None
) -> None:
    if existing:
        create(stream, "CREATE.{s}.x", {})
    answer = create(stream, "CREATE.{s}.x", config, action=action)
    if refusal is None:
        assert answer["config"].get("description") == config.get("description")
    else:
        assert Refusal(**answer["error"]) == refusal


def test_equal_consumer_created_again_keeps_its_state(stream: Stream) -> None:
    consumer = stream.consumer("d", ack_policy="explicit")
    consumer.fetch(2)
    again = stream.consumer("d", ack_policy="explicit").created
    assert again["delivered"]["stream_seq"] == 2
    assert again["num_ack_pending"] == 2


def test_stream_counts_its_consumers(stream: Stream) -> None:
    for name in "abc":
        stream.consumer(name)
    assert stream.state()["consumer_count"] == 3


# -- described, listed, deleted


def test_info_follows_deliveries_and_acks(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit")
    first, second, _ = consumer.fetch(3)
    info = consumer.info()
    assert (info["delivered"]["consumer_seq"], info["delivered"]["stream_seq"]) == (3, 3)
    assert TIME.fullmatch(info["delivered"]["last_active"])
    assert (info["num_ack_pending"], info["num_pending"]) == (3, 2)
    assert info["ack_floor"] == STARTED
    consumer.answer(second)
    assert consumer.info()["ack_floor"]["stream_seq"] == 0
    consumer.answer(first)
    floor = consumer.info()["ack_floor"]
    assert (floor["consumer_seq"], floor["stream_seq"]) == (2, 2)
    assert TIME.fullmatch(floor["last_active"])


def test_info_counts_waiting_requests(stream: Stream) -> None:
    consumer = stream.consumer(ack_policy="explicit", deliver_policy="new")
    waiting = [consumer.pull(expires=10 * SECOND) for _ in range(3)]
    until(lambda: consumer.info()["num_waiting"] == 3, "three wait")
    waiting[0].close()
    until(lambda: consumer.info()["num_waiting"] == 2, "two wait")


def test_names_and_lists_are_sorted_and_paged(stream: Stream) -> None:
    for name in ("b", "a", "C"):
        stream.consumer(name)
    names = stream.client.done(f"CONSUMER.NAMES.{stream.name}")
    assert (names["consumers"], names["total"], names["limit"]) == (["C", "a", "b"], 3, 1024)
    listed = stream.client.done(f"CONSUMER.LIST.{stream.name}", {"offset": 1})
    assert [one["name"] for one in listed["consumers"]] == ["a", "b"]
    assert (listed["total"], listed["offset"], listed["limit"]) == (3, 1, 256)
    beyond = stream.client.done(f"CONSUMER.NAMES.{stream.name}", {"offset": 9})
    assert (beyond["consumers"], beyond["offset"]) == ([], 3)


def test_deleted_consumer_is_not_found(stream: Stream) -> None:
    consumer = stream.consumer()
    assert consumer.call("DELETE") == {"type": KIND + "consumer_delete_response", "success": True}
    assert consumer.refused("INFO") == NO_CONSUMER
    assert consumer.refused("DELETE") == NO_CONSUMER
    pull = stream.client.request(f"{API}CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}")
    assert pull.status == "503"


def test_idle_ephemeral_consumer_is_deleted(stream: Stream) -> None:
    create(stream, "CREATE.{s}.x", {"inactive_threshold": 100 * MILLISECOND})
    info = f"CONSUMER.INFO.{stream.name}.x"
    until(lambda: "error" in stream.client.call(info), "it is deleted")


def test_durable_consumer_may_have_inactive_threshold(stream: Stream) -> None:
    consumer = stream.consumer(inactive_threshold=100 * MILLISECOND)
    info = f"CONSUMER.INFO.{stream.name}.{consumer.name}"
    until(lambda: "error" in stream.client.call(info), "it is deleted")


def test_streams_limits_are_defaults_for_consumers(jetstream: JetStream) -> None:
    limits = {"inactive_threshold": 60 * SECOND, "max_ack_pending": 7}
    stream = jetstream.stream(consumer_limits=limits)
    config = stream.consumer(ack_policy="explicit").created["config"]
    assert (config["inactive_threshold"], config["max_ack_pending"]) == (60 * SECOND, 7)


def test_stream_limits_its_number_of_consumers(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_consumers=1)
    stream.consumer()
    refusal = stream.consumer_refused()
    assert refusal == Refusal(400, 10026, "maximum consumers limit reached")


# -- updated


def test_filters_can_be_updated(stream: Stream) -> None:
    consumer = stream.consumer("d", ack_policy="explicit", filter_subject=stream.subject("a"))
    assert stream_sequences(consumer.fetch(1)) == [1]
    stream.consumer("d", ack_policy="explicit", filter_subject=stream.subject("b"))
    assert stream_sequences(consumer.available()) == [2, 5]


def test_update_can_raise_max_ack_pending(stream: Stream) -> None:
    consumer = stream.consumer("d", ack_policy="explicit", max_ack_pending=1)
    waiting = consumer.pull(batch=5, expires=10 * SECOND)
    assert stream_sequences([waiting.next()]) == [1]
    stream.consumer("d", ack_policy="explicit", max_ack_pending=3)
    assert stream_sequences(waiting.take(2)) == [2, 3]


# -- where it begins


BEGINNINGS: list[tuple[dict[str, Any], list[int], list[int]]] = [
    ({"deliver_policy": "all"}, [1, 2, 3, 4, 5], [6]),
    ({"deliver_policy": "last"}, [5], [6]),
    ({"deliver_policy": "new"}, [], [6]),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 3}, [3, 4, 5], [6]),
    ({"deliver_policy": "by_start_sequence", "opt_start_seq": 9}, [], []),
    ({"deliver_policy": "by_start_time", "opt_start_time": PAST}, [1, 2, 3, 4, 5], [6]),
    ({"deliver_policy": "by_start_time", "opt_start_time": FUTURE}, [], [6]),
    ({"deliver_policy": "last_per_subject", "filter_subject": ">"}, [3, 4, 5], [6]),
    ({"deliver_policy": "last_per_subject", "filter_subjects": ["a", "c"]}, [3, 4], [6]),
    ({"deliver_policy": "last_per_subject", "filter_subject": "b"}, [5], []),
    ({"deliver_policy": "last", "filter_subject": "a"}, [3], [6]),
    ({"deliver_policy": "last", "filter_subject": "nope"}, [], []),
    ({"deliver_policy": "all", "filter_subject": "a"}, [1, 3], [6]),
    ({"deliver_policy": "all", "filter_subject": "*"}, [1, 2, 3, 4, 5], [6]),
    ({"deliver_policy": "all", "filter_subjects": ["a", "c"]}, [1, 3, 4], [6]),
    ({"deliver_policy": "all", "filter_subjects": ["b", "c"]}, [2, 4, 5], []),
    (
        {"deliver_policy": "by_start_sequence", "opt_start_seq": 2, "filter_subject": "a"},
        [3],
        [6],
    ),
    ({"deliver_policy": "new", "filter_subject": "a"}, [], [6]),
]


@pytest.mark.parametrize("header", ["Own", "Nats-Own", "Nats-Expected-Stream"])
def test_messages_with_any_headers_are_pending(stream: Stream, header: str) -> None:
    consumer = stream.consumer(ack_policy="explicit")
    stream.fill("a", "b", "c")
    stream.publish("a", b"", **{header: stream.name})
    stream.fill("a")
    assert consumer.info()["num_pending"] == 10
    assert [ack_fields(one)[3] for one in consumer.fetch(10)] == [*range(9, -1, -1)]


@pytest.mark.parametrize(("config", "sequences", "later"), BEGINNINGS)
def test_deliver_policy_sets_the_start(
    stream: Stream, config: dict[str, Any], sequences: list[int], later: list[int]
) -> None:
    absolute = dict(config)
    if "filter_subject" in config:
        absolute["filter_subject"] = stream.subject(config["filter_subject"])
    if "filter_subjects" in config:
        absolute["filter_subjects"] = [stream.subject(one) for one in config["filter_subjects"]]
    consumer = stream.consumer(ack_policy="explicit", **absolute)
    assert consumer.created["num_pending"] == len(sequences)
    messages = consumer.available()
    assert stream_sequences(messages) == sequences
    pending = [ack_fields(one)[3] for one in messages]
    assert pending == [*range(len(sequences) - 1, -1, -1)]
    stream.publish("a", b"later")
    assert stream_sequences(consumer.available()) == later


def test_start_time_selects_what_is_not_older(stream: Stream) -> None:
    time = stream.get(seq=4)["time"]
    consumer = stream.consumer(deliver_policy="by_start_time", opt_start_time=time)
    assert stream_sequences(consumer.available()) == [4, 5]


@pytest.mark.parametrize("policy", ["all", "last", "new", "last_per_subject"])
def test_on_empty_stream_every_deliver_policy_starts_at_the_first_message(
    jetstream: JetStream, policy: str
) -> None:
    stream = jetstream.stream()
    consumer = stream.consumer(deliver_policy=policy, filter_subject=stream.subject(">"))
    stream.publish("a")
    assert stream_sequences(consumer.available()) == [1]


def test_consumer_starts_at_the_first_sequence_of_stream(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs=2)
    stream.fill("a", "b", "c", "d")
    consumer = stream.consumer(deliver_policy="by_start_sequence", opt_start_seq=1)
    assert stream_sequences(consumer.available()) == [3, 4]


def test_last_per_subject_is_evaluated_at_creation(stream: Stream) -> None:
    consumer = stream.consumer(
        deliver_policy="last_per_subject", filter_subject=stream.subject(">")
    )
    stream.fill("a", "d")
    assert stream_sequences(consumer.available()) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("seq", [4, 50])
@pytest.mark.parametrize("policy", ["explicit", "all", "none"])
def test_reset_beyond_the_end_waits_for_that_sequence(
    jetstream: JetStream, policy: str, seq: int
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    consumer = stream.consumer(ack_policy=policy)
    consumer.pull(batch=3).take(3)
    reset = stream.client.done(f"CONSUMER.RESET.{stream.name}.{consumer.name}", {"seq": seq})
    first = reset["reset_seq"]
    body = {"batch": 3, "no_wait": True, "expires": 60 * MILLISECOND}
    [status] = consumer.pull(**body).until_status()
    assert status.status == "408 Request Timeout"
    stream.publish("d")
    *messages, status = consumer.pull(**body).until_status()
    assert stream_sequences(messages) == ([4] if first == 4 else [])
    assert status.status == ("404 No Messages" if messages else "408 Request Timeout")
