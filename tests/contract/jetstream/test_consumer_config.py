"""Consumer configurations on a running server, against the tables and against the pure rules.

One fault, two faults at once, drawn configurations, updates and crowds: whatever a server answers,
the rules in `penstock.api` answer the same, word for word. So the rules are as the reference has
them, and our server asks them.
"""

from __future__ import annotations

import itertools
import random
from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.consumer_config import ConsumerConfig
from penstock.api.rules.consumer_defaults import ConsumerCaps
from support.assets import unique
from support.consumers import (
    CAPTURED,
    FAULTS,
    NO_CAPS,
    POOLS,
    SECOND,
    STREAMS,
    Fault,
    as_answered,
    asked,
    drawn,
    plain,
    stream_config,
)
from support.jetstream import Refusal

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.assets import JetStream
    from support.consumers import Json

SEEDS = range(8)
DRAWS = 60


class Both:
    """A stream on the server, and what the rules know of it: each request is asked of both."""

    def __init__(
        self, client: JetStream, kind: str = "plain", caps: ConsumerCaps = NO_CAPS
    ) -> None:
        self.name = unique("S")
        self.stream = stream_config(kind, self.name)
        self.consumers: dict[str, ConsumerConfig] = {}
        self._client = client
        self._caps = caps
        config = {key: value for key, value in self.stream.items() if key != "name"}
        client.stream(self.name, **config)

    def create(self, name: str, config: Json, **request: Any) -> Json | Refusal:
        """The answer of the server; fails if the rules say otherwise."""
        durable = {"durable_name": name, **config}
        return self.ask(f"CONSUMER.CREATE.{self.name}.{name}", name, durable, **request)

    def ask(self, subject: str, name: str, config: Json, **request: Any) -> Json | Refusal:
        body = {"stream_name": self.name, "config": config, **request}
        found = as_answered(self._client.call(subject, body))
        ruled = asked(subject, body, self.stream, self.consumers, caps=self._caps)
        assert in_utc(found) == plain(ruled), body
        if isinstance(ruled, ConsumerConfig):
            self.consumers[name] = ruled
        return found


def in_utc(found: Json | Refusal) -> Json | Refusal:
    """The reference keeps the zone a time came in; ours says it in UTC."""
    if isinstance(found, Refusal):
        return found
    other_zone = {"2025-01-01T02:00:00+02:00": "2025-01-01T00:00:00Z"}
    start = found.get("opt_start_time")
    return {**found, "opt_start_time": other_zone.get(start, start)} if start else found


def described(fault: Fault) -> str:
    return f"{fault.err_code}-{'-'.join(fault.config)}"


@pytest.fixture
def both(jetstream: JetStream) -> Both:
    return Both(jetstream)


# -- one configuration


@pytest.mark.parametrize("fault", FAULTS, ids=described)
def test_every_fault_is_refused_with_recorded_error(both: Both, fault: Fault) -> None:
    assert both.create("C", fault.config) == fault.refusal


@pytest.mark.parametrize("first", range(len(FAULTS)), ids=lambda at: described(FAULTS[at]))
def test_of_two_faults_both_servers_report_the_same(both: Both, first: int) -> None:
    one = FAULTS[first].config
    for number, other in enumerate(FAULTS[first + 1 :]):
        if one.keys().isdisjoint(other.config):
            both.create(f"C{number}", {**one, **other.config})


@pytest.mark.parametrize("kind", STREAMS)
@pytest.mark.parametrize("policy", POOLS["ack_policy"][1:])
def test_defaults_match_reference(jetstream: JetStream, kind: str, policy: str) -> None:
    both = Both(jetstream, kind)
    both.create("pull", {"ack_policy": policy})
    both.create("push", {"ack_policy": policy, "deliver_subject": "d", "filter_subject": "a"})


@pytest.mark.parametrize("pedantic", [False, True], ids=["lenient", "pedantic"])
@pytest.mark.parametrize("seed", SEEDS)
def test_random_configurations_match_reference(
    jetstream: JetStream, seed: int, pedantic: bool
) -> None:
    draw = random.Random(seed)
    stream = Both(jetstream, draw.choice(["plain", "capped", "interest"]))
    for number in range(DRAWS):
        config = drawn(draw, draw.randint(1, 6))
        stream.create(f"C{number}", config, pedantic=pedantic)


@pytest.mark.parametrize(
    ("field", "low", "text"),
    [
        ("max_deliver", -2, "max_deliver must be set to -1"),
        ("max_waiting", -1, "max_waiting must not be negative"),
        ("max_ack_pending", -2, "max_ack_pending must be set to -1"),
        ("max_batch", -1, "max_batch must not be negative"),
        ("max_expires", -1, "max_expires must not be negative"),
        ("max_bytes", -1, "max_bytes must not be negative"),
        ("idle_heartbeat", -1, "idle_heartbeat must not be negative"),
        ("inactive_threshold", -1, "inactive_threshold must not be negative"),
        ("priority_timeout", -1, "priority_timeout must not be negative"),
    ],
)
def test_low_number_is_raised_or_refused_if_pedantic(
    both: Both, field: str, low: int, text: str
) -> None:
    refused = both.create("C", {field: low}, pedantic=True)
    assert refused == Refusal(400, 10157, f"pedantic mode: {text}")
    assert isinstance(both.create("C", {field: low}), dict)


# -- who is meant

FORMS = [
    ("CREATE.{s}", {}),
    ("CREATE.{s}", {"name": "n"}),
    ("CREATE.{s}", {"durable_name": "n"}),
    ("CREATE.{s}", {"name": "a/b"}),
    ("CREATE.{s}", {"name": "a b"}),
    ("CREATE.{s}.n", {"name": "other"}),
    ("CREATE.{s}.n", {"durable_name": "n", "name": "other"}),
    ("CREATE.{s}.n", {"durable_name": "other"}),
    ("CREATE.{s}.a*b", {}),
    ("CREATE.{s}.a\\b", {}),
    ("CREATE.{s}.n", {"num_replicas": 2}),
    ("CREATE.{s}.n.a.b", {"filter_subject": "a.b"}),
    ("CREATE.{s}.n.a.>", {"filter_subject": "a.>"}),
    ("CREATE.{s}.n.a.b", {"filter_subject": "a.c"}),
    ("CREATE.{s}.n.a.b", {}),
    ("CREATE.{s}.n.a.b", {"filter_subjects": ["a.b"]}),
    ("CREATE.{s}.n.a.b", {"filter_subjects": [], "filter_subject": "a.b"}),
    ("CREATE.{s}.n.a.b", {"durable_name": "x", "filter_subjects": ["a.b"]}),
    ("CREATE.{s}." + "n" * 256, {"durable_name": "n" * 256}),
    ("DURABLE.CREATE.{s}.n", {"durable_name": "n"}),
    ("DURABLE.CREATE.{s}.n", {"durable_name": "n", "name": "other"}),
    ("DURABLE.CREATE.{s}.n", {"name": "n"}),
    ("DURABLE.CREATE.{s}.n", {"durable_name": "other"}),
    ("DURABLE.CREATE.{s}.a/b", {"durable_name": "a/b"}),
]


@pytest.mark.parametrize(("form", "config"), FORMS)
def test_consumer_name_in_subject_and_body_is_checked_alike(
    both: Both, form: str, config: Json
) -> None:
    both.ask("CONSUMER." + form.format(s=both.name), "", config)


@pytest.mark.parametrize("form", ["CREATE.{s}.n.a.b", "DURABLE.CREATE.{s}.n", "CREATE.{s}"])
def test_other_stream_in_body_is_reported_first(both: Both, form: str) -> None:
    config = {"durable_name": "x/y", "num_replicas": 9}
    subject = "CONSUMER." + form.format(s=both.name)
    refused = both.ask(subject, "", config, stream_name="other")
    assert refused == Refusal(400, 10056, "stream name in subject does not match request")


@pytest.mark.parametrize(
    "body",
    [
        {"config": {"priority_policy": "bad"}},
        {"config": {"priority_policy": None}},
        {"config": {"deliver_policy": "bad"}},
        {"config": {"deliver_policy": "undefined"}},
        {"config": {"ack_policy": 5}},
        {"config": {"replay_policy": None}},
        {"action": "bad"},
        {"action": None},
        {"action": 1.5},
        {"config": {"ack_wait": "5s"}},
        {"config": {"max_deliver": 1.5}},
        {"config": {"opt_start_seq": -1}},
        {"config": {"opt_start_time": "yesterday"}},
        {"config": {"backoff": [1, "x"]}},
        {"config": {"surprise": 1}},
        {"config": None},
        {"config": {"Max_Deliver": 5}},
    ],
    ids=str,
)
def test_bodies_are_read_alike(both: Both, body: Json) -> None:
    both.ask(f"CONSUMER.CREATE.{both.name}.n", "n", body.pop("config", {}), **body)


# -- changes


@pytest.mark.parametrize("seed", SEEDS)
def test_random_updates_match_reference(jetstream: JetStream, seed: int) -> None:
    draw = random.Random(seed)
    stream = Both(jetstream, draw.choice(["plain", "interest"]))
    for number in range(DRAWS):
        name = f"C{number % 5}"
        before = stream.consumers.get(name)
        config = drawn(draw, draw.randint(1, 3))
        if before is not None:
            kept = {"ack_policy": str(before.ack_policy), "deliver_subject": before.deliver_subject}
            config = {**kept, **config}
        action = draw.choice(["", "", "create", "update"])
        stream.create(name, config, action=action)


FIXED = [
    ("deliver policy", {"deliver_policy": "new"}),
    ("storage type", {"mem_storage": True}),
    ("sourcing", {"sourcing": True}),
    ("start sequence", {"opt_start_seq": 3}),
    ("ack policy", {"ack_policy": "all"}),
    ("replay policy", {"replay_policy": "original"}),
    ("heart beats", {"idle_heartbeat": 2 * SECOND}),
    ("flow control", {"flow_control": False}),
]
PUSH = {
    "deliver_policy": "by_start_sequence",
    "opt_start_seq": 2,
    "ack_policy": "explicit",
    "deliver_subject": "d",
    "idle_heartbeat": SECOND,
    "flow_control": True,
}


@pytest.mark.parametrize(("words", "change"), FIXED, ids=[words for words, _ in FIXED])
def test_immutable_fields_cannot_be_updated(both: Both, words: str, change: Json) -> None:
    both.create("C", PUSH)
    changed = {**PUSH, **change}
    if words == "deliver policy":
        del changed["opt_start_seq"]
    refused = both.create("C", changed)
    assert refused == Refusal(500, 10012, f"{words} can not be updated")


def test_push_and_pull_consumers_cannot_be_converted(both: Both) -> None:
    both.create("push", {"deliver_subject": "d"})
    both.create("pull", {})
    to_pull = both.create("push", {})
    to_push = both.create("pull", {"deliver_subject": "d"})
    waiting = both.create("pull", {"max_waiting": 5})
    assert to_pull == Refusal(500, 10012, "can not update push consumer to pull based")
    assert to_push == Refusal(500, 10012, "can not update pull consumer to push based")
    assert waiting == Refusal(500, 10012, "max waiting can not be updated")


def test_deliver_subject_with_subscriber_cannot_change(jetstream: JetStream, both: Both) -> None:
    target = f"{both.name}-d"
    both.create("C", {"deliver_subject": target})
    jetstream.subscribe(target)
    jetstream.fence()
    body = {"durable_name": "C", "deliver_subject": "elsewhere"}
    request = {"stream_name": both.name, "config": body}
    refused = jetstream.refused(f"CONSUMER.CREATE.{both.name}.C", request)
    assert refused == Refusal(400, 10013, "consumer name already in use")


def test_create_accepts_only_equal_existing_consumer(both: Both) -> None:
    assert isinstance(both.create("C", {"description": "a"}, action="create"), dict)
    assert isinstance(both.create("C", {"description": "a"}, action="create"), dict)
    refused = both.create("C", {"description": "b"}, action="create")
    missing = both.create("D", {}, action="update")
    assert refused == Refusal(400, 10148, "consumer already exists")
    assert missing == Refusal(400, 10149, "consumer does not exist")


def test_consumer_without_durable_name_is_not_equal_to_its_own_request(both: Both) -> None:
    subject = f"CONSUMER.CREATE.{both.name}.E"
    both.ask(subject, "E", {}, action="create")
    again = both.ask(subject, "E", {}, action="create")
    stated = both.ask(subject, "E", {"inactive_threshold": 5 * SECOND}, action="create")
    assert again == Refusal(400, 10148, "consumer already exists")
    assert isinstance(stated, dict)


def test_creating_again_does_not_change_pause(both: Both) -> None:
    both.create("C", {"pause_until": "2035-01-01T00:00:00Z"})
    again = both.create("C", {"pause_until": "2036-01-01T00:00:00Z"})
    assert isinstance(again, dict)
    assert again["pause_until"] == "2035-01-01T00:00:00Z"


# -- among other consumers

FILTERS = [
    "",
    f"{CAPTURED}.a",
    f"{CAPTURED}.b",
    f"{CAPTURED}.*",
    f"{CAPTURED}.>",
    f"{CAPTURED}.a.b",
]


@pytest.mark.parametrize("filters", list(itertools.product(FILTERS, repeat=2)), ids=str)
def test_work_queue_consumers_must_not_overlap(
    jetstream: JetStream, filters: tuple[str, str]
) -> None:
    queue = Both(jetstream, "queue")
    for name, wanted in zip("ab", filters, strict=True):
        queue.create(name, {"ack_policy": "explicit", "filter_subject": wanted})
    queue.create("a", {"ack_policy": "explicit", "filter_subject": filters[1]})


@pytest.mark.parametrize(
    ("config", "refusal"),
    [
        (
            {},
            (10084, "consumer in pull mode requires explicit ack policy on workqueue stream"),
        ),
        ({"ack_policy": "all"}, (10098, "workqueue stream requires explicit ack")),
        ({"deliver_subject": "d"}, (10098, "workqueue stream requires explicit ack")),
        (
            {"ack_policy": "explicit", "deliver_policy": "new"},
            (10101, "consumer must be deliver all on workqueue stream"),
        ),
    ],
)
def test_work_queue_consumer_needs_explicit_acks(
    jetstream: JetStream, config: Json, refusal: tuple[int, str]
) -> None:
    assert Both(jetstream, "queue").create("C", config) == Refusal(400, *refusal)


def test_max_consumers_is_enforced(jetstream: JetStream) -> None:
    narrow = Both(jetstream, "narrow")
    narrow.create("a", {})
    narrow.create("b", {})
    refused = narrow.create("c", {})
    assert refused == Refusal(400, 10026, "maximum consumers limit reached")
    assert isinstance(narrow.create("b", {"description": "still there"}), dict)


# -- limits of server and account

LIMITED = """
jetstream {
  store_dir: "store"
  limits { max_ack_pending: 50, max_request_batch: 20, max_ha_assets: 10 }
}
accounts {
  LIMITED {
    users: [ { user: u, password: p } ]
    jetstream { max_mem: 1M, max_file: 10M, max_ack_pending: 30, max_consumers: 3 }
  }
}
"""
LIMITS = ConsumerCaps(
    server_max_ack_pending=50,
    server_max_batch=20,
    account_max_ack_pending=30,
    account_max_consumers=3,
)


@pytest.mark.parametrize(
    "config",
    [
        {"ack_policy": "explicit"},
        {"ack_policy": "explicit", "max_ack_pending": 31},
        {"ack_policy": "explicit", "max_ack_pending": 51},
        {"ack_policy": "explicit", "max_ack_pending": -1},
        {"max_batch": 21},
        {"max_batch": 20},
        {"deliver_subject": "d", "max_batch": 21},
    ],
    ids=str,
)
def test_limits_of_server_and_account_are_enforced(
    configured: Callable[..., JetStream], config: Json
) -> None:
    both = Both(configured(LIMITED, user="u", **{"pass": "p"}), caps=LIMITS)
    both.create("lenient", config)
    both.create("pedantic", config, pedantic=True)


def test_max_consumers_of_account_applies_per_stream(
    configured: Callable[..., JetStream],
) -> None:
    client = configured(LIMITED, user="u", **{"pass": "p"})
    both = Both(client, caps=LIMITS)
    answers = [both.create(f"C{number}", {}) for number in range(4)]
    assert answers[3] == Refusal(400, 10026, "maximum consumers limit reached")
