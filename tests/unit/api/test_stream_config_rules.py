"""Stream configurations against the rules, without a server."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from penstock.api.json_codec import decode
from penstock.api.refusals import ApiError
from penstock.api.request_bodies import StreamConfigRequest
from penstock.api.rules.stream_defaults import StreamContext
from penstock.api.rules.stream_rules import (
    SOURCES_MAX,
    STREAM_RULES,
    SUBJECTS_MAX,
    TRANSFORMS_MAX,
    check_stream,
)
from penstock.api.stream_config import StreamConfig
from penstock.base.sequences import SEQ_MAX
from support.jetstream import Refusal
from support.streams import FAULTS, GOOD, NAME, Fault, asked, named, origins, plain

AROUND = origins()
MINUTE = 60_000_000_000

PEDANTIC = [
    ({"max_msgs": -2}, "max_msgs must be set to -1"),
    ({"max_msgs_per_subject": -2}, "max_msgs_per_subject must be set to -1"),
    ({"max_bytes": -2}, "max_bytes must be set to -1"),
    ({"max_msg_size": -2}, "max_msg_size must be set to -1"),
    ({"max_consumers": -2}, "max_consumers must be set to -1"),
    ({"max_age": MINUTE}, "duplicate window cannot be bigger than max age"),
    (
        {"mirror": {"name": "DIRECT"}},
        "origin stream has direct get set, mirror has it disabled",
    ),
    ({"republish": {"dest": "r.>"}}, "republish source can not be empty"),
    (
        {
            "republish": {"src": ">", "dest": ">"},
            "subjects": ["a"],
            "subject_transform": {"src": "a", "dest": "b"},
        },
        "implicit republish based on subject transform",
    ),
]
PEDANTIC_INVALID = [
    (
        {"subject_delete_marker_ttl": MINUTE},
        "subject delete marker cannot be set if message TTLs are disabled",
    ),
    (
        {"subject_delete_marker_ttl": MINUTE, "allow_msg_ttl": True},
        "subject delete marker cannot be set if roll-ups are disabled",
    ),
    ({"allow_msg_schedules": True}, "message scheduling cannot be set if roll-ups are disabled"),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.label)
def test_fault_is_refused_in_words_of_table(fault: Fault) -> None:
    assert plain(asked("CREATE", NAME, named(fault.config), AROUND)) == fault.refusal


@pytest.mark.parametrize(("config", "text"), PEDANTIC, ids=lambda value: str(value)[:40])
def test_pedantic_refuses_what_would_be_corrected(config: dict[str, object], text: str) -> None:
    lenient = asked("CREATE", NAME, named(config), AROUND)
    assert isinstance(lenient, StreamConfig)
    strict = asked("CREATE", NAME, named({**config, "pedantic": True}), AROUND)
    assert plain(strict) == Refusal(400, 10157, f"pedantic mode: {text}")


@pytest.mark.parametrize(("config", "text"), PEDANTIC_INVALID, ids=lambda value: str(value)[:40])
def test_pedantic_refuses_what_would_be_switched_on(config: dict[str, object], text: str) -> None:
    assert isinstance(asked("CREATE", NAME, named(config), AROUND), StreamConfig)
    strict = asked("CREATE", NAME, named({**config, "pedantic": True}), AROUND)
    assert plain(strict) == Refusal(500, 10052, text)


OURS_ALONE: list[dict[str, object]] = [
    {"first_seq": SEQ_MAX + 1},
    {"mirror": {"name": "O", "opt_start_seq": SEQ_MAX + 1}},
    {"sources": [{"name": "O", "opt_start_seq": 2**64 - 1}]},
]
"""What the reference takes, and wraps around."""


@pytest.mark.parametrize("config", OURS_ALONE)
def test_sequences_that_cannot_be_are_refused(config: dict[str, object]) -> None:
    cfg, ctx = decoded(config)
    refused = check_stream(cfg, ctx)
    assert isinstance(refused, ApiError)
    assert refused.err_code == 10052
    assert str(SEQ_MAX) in refused.description


def test_lengths_of_lists_are_limited() -> None:
    transforms = [{"src": f"a.{i}"} for i in range(TRANSFORMS_MAX // 2 + 1)]
    half = [{"name": name, "subject_transforms": transforms} for name in "OP"]
    for what, most, config in (
        ("subjects", SUBJECTS_MAX, {"subjects": [f"a.{i}" for i in range(SUBJECTS_MAX + 1)]}),
        ("sources", SOURCES_MAX, {"sources": [{"name": f"O{i}"} for i in range(SOURCES_MAX + 1)]}),
        ("subject transforms", TRANSFORMS_MAX, {"sources": half}),
    ):
        cfg, ctx = decoded(config)
        refused = check_stream(cfg, ctx)
        assert isinstance(refused, ApiError)
        assert refused.err_code == 10052
        assert refused.description == f"too many {what}, maximum allowed is {most}"
        shorter = replace(cfg, subjects=cfg.subjects[1:], sources=cfg.sources[1:])
        assert check_stream(shorter, ctx) is None


def test_every_rule_refuses_something() -> None:
    unused = set(STREAM_RULES)
    configs = [fault.config for fault in FAULTS]
    configs += [{**config, "pedantic": True} for config, _ in PEDANTIC + PEDANTIC_INVALID]
    configs += OURS_ALONE
    for config in configs:
        cfg, ctx = decoded(config)
        unused -= {rule for rule in unused if rule(cfg, ctx) is not None}
    assert {rule.__name__ for rule in unused} == {"_name", "_max_bytes", "_counts"}


def decoded(config: dict[str, object]) -> tuple[StreamConfig, StreamContext]:
    request = decode(StreamConfigRequest, json.dumps(named(config)).encode())
    return request.config, StreamContext(streams=AROUND, pedantic=request.pedantic)


@pytest.mark.parametrize("name", ["", " ", "a.b", "a*", ">", "a/b", "a\\b", "a\tb", "N" * 256])
def test_name_is_one_short_token(name: str) -> None:
    refused = check_stream(StreamConfig(name=name), StreamContext())
    assert isinstance(refused, ApiError)
    assert refused.err_code == 10052


def test_lengths_count_bytes() -> None:
    assert check_stream(StreamConfig(name="é" * 127), StreamContext()) is None
    assert check_stream(StreamConfig(name="é" * 128), StreamContext()) is not None


def test_good_configurations_pass() -> None:
    for config in GOOD:
        if not config.get("sealed"):
            assert isinstance(asked("CREATE", NAME, named(config), {}), StreamConfig), config


def test_server_may_limit_window() -> None:
    limit = {"duplicate_window_max": MINUTE}
    defaulted = asked("CREATE", NAME, named({}), AROUND, **limit)
    assert isinstance(defaulted, StreamConfig)
    assert defaulted.duplicate_window == MINUTE
    pedantic = asked("CREATE", NAME, named({"pedantic": True}), AROUND, **limit)
    assert plain(pedantic) == Refusal(
        400, 10157, "pedantic mode: duplicate window limits are higher than current limits"
    )
    asked_for = asked("CREATE", NAME, named({"duplicate_window": MINUTE + 1}), AROUND, **limit)
    assert plain(asked_for) == Refusal(
        500, 10052, "duplicates window can not be larger then server limit of 1m0s"
    )
