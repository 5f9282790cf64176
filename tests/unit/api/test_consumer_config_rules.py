"""Which consumer configurations are allowed, and what they become."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from msgspec import structs

from penstock.api.consumer_config import AckPolicy, ConsumerConfig, PriorityPolicy
from penstock.api.json_codec import decode, encode
from penstock.api.refusals import ApiError
from penstock.api.rules import consumer_rules
from penstock.api.rules.consumer_defaults import ConsumerCaps, normalise
from penstock.api.rules.consumer_rules import check_consumer, sampled_percent
from penstock.api.stream_config import ConsumerLimits, Retention, StreamConfig
from support.consumers import FAULTS, NO_CAPS, Fault, asked, drawn, plain, stream_config

PLAIN = StreamConfig(name="S", subjects=("captured.>",), num_replicas=1)
DRAWS = 500


def described(fault: Fault) -> str:
    return f"{fault.err_code}-{'-'.join(fault.config)}"


def normal(
    cfg: ConsumerConfig, stream: StreamConfig = PLAIN, caps: ConsumerCaps = NO_CAPS
) -> ConsumerConfig:
    result = normalise(cfg, stream, caps)
    assert isinstance(result, ConsumerConfig)
    return result


def drawn_config(draw: random.Random) -> ConsumerConfig:
    return decode(ConsumerConfig, json.dumps(drawn(draw, draw.randint(0, 8))).encode())


# -- rules


@pytest.mark.parametrize("fault", FAULTS, ids=described)
def test_each_fault_has_its_refusal(fault: Fault) -> None:
    config = {"durable_name": "C", **fault.config}
    body = {"stream_name": "S", "config": config}
    result = asked("CONSUMER.CREATE.S.C", body, stream_config("plain"))
    assert plain(result) == fault.refusal


def test_every_rule_is_in_force() -> None:
    made = {
        name
        for name, value in vars(consumer_rules).items()
        if callable(value) and list(getattr(value, "__annotations__", ())) == RULE_ARGUMENTS
    } - {"check_consumer", "check_consumer_sliced"}
    assert made == {rule.__name__ for rule in consumer_rules.CONSUMER_RULES}


RULE_ARGUMENTS = ["cfg", "stream", "caps", "return"]


def test_number_of_filters_is_limited() -> None:
    filters = tuple(f"a.{i}" for i in range(consumer_rules.FILTERS_MAX + 1))
    refused = check_consumer(normal(ConsumerConfig(filter_subjects=filters)), PLAIN, NO_CAPS)
    assert refused is not None
    assert refused.err_code == 10094
    assert str(consumer_rules.FILTERS_MAX) in refused.description


@pytest.mark.parametrize("copies", [1, 3])
def test_interest_needs_as_many_copies_as_stream(copies: int) -> None:
    stream = structs.replace(PLAIN, retention=Retention.INTEREST, num_replicas=3)
    refused = check_consumer(normal(ConsumerConfig(num_replicas=copies)), stream, NO_CAPS)
    assert (refused is None) == (copies == 3)
    limits = structs.replace(stream, retention=Retention.LIMITS)
    assert check_consumer(normal(ConsumerConfig(num_replicas=copies)), limits, NO_CAPS) is None


def test_more_copies_than_stream_has_are_refused() -> None:
    refused = check_consumer(normal(ConsumerConfig(num_replicas=2)), PLAIN, NO_CAPS)
    assert refused is not None
    assert refused.err_code == 10126


@pytest.mark.parametrize(
    ("text", "share"),
    [("", 0), ("50%", 50), ("+7", 7), ("250", 250), ("x", 0), ("-1", 0), ("9" * 5000, 0)],
)
def test_sampling_is_percentage(text: str, share: int) -> None:
    assert sampled_percent(text) == share


@pytest.mark.parametrize("digits", ["9" * 19, "9" * 5000, "-" + "9" * 30])
def test_share_beyond_64_bits_is_out_of_range(digits: str) -> None:
    refused = check_consumer(normal(ConsumerConfig(sample_freq=digits)), PLAIN, NO_CAPS)
    assert refused is not None
    assert refused.description.endswith("value out of range")


# -- defaults


def test_normalising_twice_is_normalising_once() -> None:
    draw = random.Random(1)
    limits = ConsumerLimits(max_ack_pending=9, inactive_threshold=10)
    capped = structs.replace(PLAIN, consumer_limits=limits)
    caps = ConsumerCaps(server_max_ack_pending=8, server_max_batch=7)
    for _ in range(DRAWS):
        once = normal(drawn_config(draw), capped, caps)
        assert normal(once, capped, caps) == once


def test_config_accepted_by_pedantic_is_not_lowered() -> None:
    draw = random.Random(2)
    accepted = 0
    for _ in range(DRAWS):
        cfg = drawn_config(draw)
        strict = normalise(cfg, PLAIN, NO_CAPS, pedantic=True)
        if isinstance(strict, ApiError):
            assert strict.err_code == 10157
            continue
        accepted += 1
        lenient = normal(cfg)
        if cfg.ack_policy is not AckPolicy.FLOW_CONTROL:
            assert strict == lenient
    assert accepted > DRAWS // 10


@pytest.mark.parametrize(
    ("given", "filled"),
    [
        ({}, {"max_deliver": -1, "max_waiting": 512, "ack_wait": 0, "max_ack_pending": 0}),
        ({"deliver_subject": "d"}, {"max_waiting": 0}),
        ({"ack_policy": AckPolicy.EXPLICIT}, {"ack_wait": 30 * 10**9, "max_ack_pending": 1000}),
        ({"ack_policy": AckPolicy.ALL, "backoff": (5, 6)}, {"ack_wait": 5}),
        ({"ack_policy": AckPolicy.FLOW_CONTROL}, {"flow_control": True, "idle_heartbeat": 10**9}),
        ({"priority_policy": PriorityPolicy.PINNED_CLIENT}, {"priority_timeout": 120 * 10**9}),
        ({"priority_policy": PriorityPolicy.OVERFLOW}, {"priority_timeout": 0}),
        ({"max_deliver": -7, "max_ack_pending": -7}, {"max_deliver": -1, "max_ack_pending": -1}),
    ],
)
def test_unset_fields_get_defaults(given: dict[str, Any], filled: dict[str, Any]) -> None:
    cfg = normal(ConsumerConfig(**given))
    assert {name: getattr(cfg, name) for name in filled} == filled


def test_lowest_cap_is_default_for_unacknowledged_messages() -> None:
    explicit = ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
    caps = ConsumerCaps(server_max_ack_pending=50, account_max_ack_pending=30, server_max_batch=4)
    cfg = normal(explicit, caps=caps)
    assert (cfg.max_ack_pending, cfg.max_batch) == (30, 4)
    limits = ConsumerLimits(max_ack_pending=60, inactive_threshold=7)
    of_stream = normal(explicit, structs.replace(PLAIN, consumer_limits=limits), caps)
    assert (of_stream.max_ack_pending, of_stream.inactive_threshold) == (60, 7)


def test_configuration_survives_wire() -> None:
    draw = random.Random(3)
    for _ in range(DRAWS):
        cfg = drawn_config(draw)
        assert decode(ConsumerConfig, encode(cfg)) == cfg
