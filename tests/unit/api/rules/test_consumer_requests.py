"""Who a request is for, what is stored, and what may not change."""

from __future__ import annotations

import random
from typing import get_type_hints

import pytest
from msgspec import structs

from penstock.api.api_levels import REQUIRED_LEVEL_KEY
from penstock.api.consumer_config import (
    AckPolicy,
    ConsumerAction,
    ConsumerConfig,
    CreateConsumerRequest,
    DeliverPolicy,
    ReplayPolicy,
)
from penstock.api.json_codec import marks_of
from penstock.api.refusals import ApiError
from penstock.api.rules.consumer_defaults import ConsumerCaps
from penstock.api.rules.consumer_requests import (
    Addressed,
    RequestContext,
    addressed,
    check_consumer_update,
    decide,
    for_source,
    with_level,
)
from penstock.api.rules.consumer_rules import check_consumer
from penstock.api.stream_config import Retention, StreamConfig
from support.consumers import NO_CAPS, asked, drawn, stream_config

STREAM = StreamConfig(name="S", subjects=("captured.>",), num_replicas=1)
QUEUE = structs.replace(STREAM, retention=Retention.WORKQUEUE)
EITHER = ConsumerAction.CREATE_OR_UPDATE
DRAWS = 500


def meant(subject: str, stream: str = "S", **config: object) -> Addressed | ApiError:
    request = CreateConsumerRequest(stream_name=stream, config=ConsumerConfig(**config))
    return addressed(f"$JS.API.CONSUMER.{subject}".split("."), request)


def err_code(result: object) -> int:
    assert isinstance(result, ApiError), result
    return result.err_code


# -- who is meant


@pytest.mark.parametrize(
    ("subject", "config", "name"),
    [
        ("CREATE.S", {}, ""),
        ("CREATE.S", {"name": "n"}, "n"),
        ("CREATE.S.n", {}, "n"),
        ("CREATE.S.n", {"name": "other"}, "n"),
        ("CREATE.S.n", {"durable_name": "n"}, "n"),
        ("CREATE.S.n.a.>", {"filter_subject": "a.>"}, "n"),
        ("DURABLE.CREATE.S.n", {"durable_name": "n", "name": "other"}, "n"),
    ],
)
def test_subject_names_consumer(subject: str, config: dict[str, str], name: str) -> None:
    result = meant(subject, **config)
    assert isinstance(result, Addressed)
    assert (result.stream, result.name, result.config.name) == ("S", name, name)


@pytest.mark.parametrize(
    ("subject", "config", "code"),
    [
        ("CREATE.T", {"name": "a/b"}, 10056),
        ("CREATE.S", {"name": "a/b", "durable_name": "x"}, 10127),
        ("CREATE.S.\udcff", {}, 10012),
        ("DURABLE.CREATE.S.\udcff", {"durable_name": "x"}, 10012),
        ("CREATE.S", {"durable_name": "n", "num_replicas": 3}, 10020),
        ("DURABLE.CREATE.S.n", {"num_replicas": 3}, 10018),
        ("DURABLE.CREATE.S.n", {"durable_name": "m"}, 10017),
        ("CREATE.S.n.a", {"durable_name": "m", "filter_subjects": ("b",)}, 10017),
        ("CREATE.S.n.a", {"filter_subject": "b", "filter_subjects": ("b",)}, 10137),
        ("CREATE.S.n.a", {"filter_subject": "b", "num_replicas": 3}, 10131),
        ("CREATE.S.n.a", {"filter_subject": "a", "num_replicas": 3}, 10074),
    ],
)
def test_of_several_contradictions_the_first_is_named(
    subject: str, config: dict[str, object], code: int
) -> None:
    assert err_code(meant(subject, **config)) == code


def test_copies_are_matter_for_clusters() -> None:
    request = CreateConsumerRequest(stream_name="S", config=ConsumerConfig(num_replicas=3))
    tokens = ["$JS", "API", "CONSUMER", "CREATE", "S", "n"]
    assert isinstance(addressed(tokens, request, clustered=True), Addressed)
    assert err_code(addressed(tokens, request)) == 10074


# -- for other streams

SOURCE = ConsumerConfig(
    name="JS_SRC_x", direct=True, sourcing=True, deliver_subject="d", ack_wait=9, max_deliver=1
)


def test_copy_of_stream_with_limits_gets_consumer_of_its_own() -> None:
    result = for_source(Addressed("S", SOURCE.name, SOURCE), STREAM, "r4nd")
    assert result.name == result.config.name == "JS_SRC_x-r4nd"
    assert result.config == structs.replace(SOURCE, name=result.name)


@pytest.mark.parametrize("retention", [Retention.INTEREST, Retention.WORKQUEUE])
def test_copy_of_stream_that_drops_messages_is_remembered(retention: Retention) -> None:
    stream = structs.replace(STREAM, retention=retention)
    result = for_source(Addressed("S", SOURCE.name, SOURCE), stream, "r4nd")
    assert result.name == result.config.durable_name == "JS_SRC_x"
    assert result.config.ack_policy is AckPolicy.FLOW_CONTROL
    stored = decide(result.config, EITHER, RequestContext(stream))
    assert isinstance(stored, ConsumerConfig)
    assert not stored.direct
    moved = structs.replace(
        result.config, deliver_policy=DeliverPolicy.BY_START_SEQUENCE, opt_start_seq=7
    )
    again = decide(moved, EITHER, RequestContext(stream, consumers={stored.name: stored}))
    assert again == stored


def test_ordinary_consumers_are_left_as_they_are() -> None:
    ordinary = Addressed("S", "n", ConsumerConfig(name="n", direct=True))
    assert for_source(ordinary, QUEUE, "r4nd") is ordinary


# -- what may not change

OTHER_VALUES = {
    "deliver_policy": DeliverPolicy.LAST,
    "opt_start_seq": 5,
    "opt_start_time": 5,
    "ack_policy": AckPolicy.ALL,
    "replay_policy": ReplayPolicy.ORIGINAL,
    "max_waiting": 5,
    "flow_control": True,
    "idle_heartbeat": 5,
    "mem_storage": True,
    "direct": True,
    "sourcing": True,
}


def fixed_fields() -> set[str]:
    hints = get_type_hints(ConsumerConfig, include_extras=True)
    return {name for name, hint in hints.items() if "fixed" in marks_of(hint)}


def test_fields_are_fixed_exactly_if_declared_so() -> None:
    old = ConsumerConfig(durable_name="C", name="C")
    changed = {name: structs.replace(old, **{name: value}) for name, value in OTHER_VALUES.items()}
    assert fixed_fields() - {"name", "durable_name"} == set(changed)
    for new in changed.values():
        assert err_code(check_consumer_update(old, new, lambda _: False)) == 10012


def test_free_fields_can_be_updated() -> None:
    draw = random.Random(4)
    accepted = 0
    for _ in range(DRAWS):
        body = {"stream_name": "S", "config": {"durable_name": "C", **drawn(draw, 2)}}
        new = asked("CONSUMER.CREATE.S.C", body, stream_config("plain"))
        old = asked(
            "CONSUMER.CREATE.S.C",
            {"stream_name": "S", "config": {"durable_name": "C"}},
            stream_config("plain"),
        )
        assert isinstance(old, ConsumerConfig)
        if isinstance(new, ApiError):
            continue
        touched = {name for name in OTHER_VALUES if getattr(old, name) != getattr(new, name)}
        refused = check_consumer_update(old, new, lambda _: True)
        assert (refused is not None) == bool(touched or new.is_push)
        accepted += refused is None
    assert accepted > DRAWS // 10


def test_deliver_subject_changes_only_without_listeners() -> None:
    old, new = ConsumerConfig(deliver_subject="d"), ConsumerConfig(deliver_subject="e")
    assert check_consumer_update(old, new, lambda subject: subject == "e") is None
    assert err_code(check_consumer_update(old, new, lambda subject: subject == "d")) == 10013


# -- what is stored


def test_decisions_are_allowed_and_repeatable() -> None:
    draw = random.Random(5)
    stored = 0
    for _ in range(DRAWS):
        body = {"stream_name": "S", "config": {"durable_name": "C", **drawn(draw, 3)}}
        made = asked("CONSUMER.CREATE.S.C", body, stream_config("plain"))
        if isinstance(made, ApiError):
            continue
        stored += 1
        assert check_consumer(made, STREAM, NO_CAPS) is None
        around = RequestContext(STREAM, consumers={"C": made})
        assert decide(made, ConsumerAction.CREATE, around) == made
    assert stored > DRAWS // 4


def test_required_level_is_stored_and_servers_own_is_not() -> None:
    said = {"_nats.ver": "9", "_nats.level": "9", REQUIRED_LEVEL_KEY: "9", "mine": "x"}
    stored = with_level(ConsumerConfig(metadata=said))
    assert stored.metadata == {REQUIRED_LEVEL_KEY: "0", "mine": "x"}


@pytest.mark.parametrize(
    ("cfg", "level"),
    [
        (ConsumerConfig(), "0"),
        (ConsumerConfig(pause_until=0), "0"),
        (ConsumerConfig(pause_until=1), "1"),
        (ConsumerConfig(priority_groups=("a",)), "1"),
        (ConsumerConfig(priority_timeout=1), "1"),
        (ConsumerConfig(ack_policy=AckPolicy.FLOW_CONTROL, pause_until=1), "4"),
    ],
)
def test_newer_features_need_newer_servers(cfg: ConsumerConfig, level: str) -> None:
    assert with_level(cfg).metadata[REQUIRED_LEVEL_KEY] == level


def test_consumers_that_feed_streams_do_not_count() -> None:
    inner = ConsumerConfig(name="i", direct=True, deliver_subject="d")
    around = RequestContext(
        QUEUE, ConsumerCaps(account_max_consumers=1), consumers={"i": inner, "j": inner}
    )
    cfg = ConsumerConfig(durable_name="C", name="C", ack_policy=AckPolicy.EXPLICIT)
    made = decide(cfg, EITHER, around)
    assert isinstance(made, ConsumerConfig)
    full = around._replace(consumers={"C": made})
    other = structs.replace(cfg, durable_name="D", name="D")
    assert err_code(decide(other, EITHER, full)) == 10026
    assert isinstance(decide(inner, EITHER, full), ConsumerConfig)


@pytest.mark.parametrize(
    ("of_stream", "of_account", "of_server", "allowed"),
    [(0, 0, 0, 9), (2, 0, 1, 2), (2, 3, 0, 2), (3, 2, 0, 2), (-1, -1, 1, 1), (-1, 2, 1, 2)],
)
def test_narrowest_limit_of_consumers_counts_and_servers_only_without_others(
    of_stream: int, of_account: int, of_server: int, allowed: int
) -> None:
    caps = ConsumerCaps(account_max_consumers=of_account, server_max_consumers=of_server)
    stream = structs.replace(STREAM, max_consumers=of_stream)
    consumers: dict[str, ConsumerConfig] = {}
    for number in range(9):
        made = decide(
            ConsumerConfig(name=f"C{number}"), EITHER, RequestContext(stream, caps, consumers)
        )
        if isinstance(made, ConsumerConfig):
            consumers[made.name] = made
    assert len(consumers) == allowed
