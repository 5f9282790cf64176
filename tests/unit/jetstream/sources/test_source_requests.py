"""What a copy asks its origin for, in the reference's words, and how answers are read."""

from __future__ import annotations

import json

import pytest

from penstock.api.refusals import ApiError
from penstock.api.stream_config import External, SourceConsumer, StreamSource, SubjectTransform
from penstock.base.short_hash import short_hash
from penstock.jetstream.sources.source_requests import NOT_AN_ANSWER, ConsumerCreated, read_answer
from support.copies import MIRROR, SOURCE, Copy
from support.stream_run import NEW_YEAR, block

HUB = External(api="$JS.hub.API", deliver="deliver.")


def test_mirror_asks_for_consumer_that_sends_everything() -> None:
    copy = Copy(**MIRROR)
    [request] = copy.requests
    assert request.subject == "$JS.API.CONSUMER.CREATE.O"
    assert request.header == b"NATS/1.0\r\nNats-Required-Api-Level: 4\r\n\r\n"
    assert json.loads(request.payload)["stream_name"] == "O"
    deliver_subject = copy.asked.pop("deliver_subject")
    assert deliver_subject.startswith("$JS.M.")
    expected = {
        "name": f"JS_MIRROR_{short_hash('S $G')}",
        "deliver_subject": deliver_subject,
        "deliver_policy": "all",
        "ack_policy": "none",
        "ack_wait": 79_200_000_000_000,
        "max_deliver": 1,
        "replay_policy": "instant",
        "idle_heartbeat": 1_000_000_000,
        "flow_control": True,
        "direct": True,
        "sourcing": True,
        "inactive_threshold": 10_000_000_000,
        "num_replicas": 0,
        "metadata": {"_nats.mirror.stream": "S", "_nats.mirror.acc": "$G"},
    }
    assert copy.asked == expected


def test_source_request_names_its_origin_and_domain() -> None:
    copy = Copy(domain="leaf", **SOURCE)
    [request] = copy.requests
    assert request.header == (
        b"NATS/1.0\r\nNats-Required-Api-Level: 5\r\nNats-Stream-Identity: \r\n\r\n"
    )
    assert copy.asked["name"] == f"JS_SRC_{short_hash(short_hash('S $G leaf'))}"
    assert copy.asked["deliver_subject"].startswith("$JS.S.")
    assert copy.asked["metadata"]["_nats.src.domain"] == "leaf"


def test_sources_of_one_origin_ask_under_different_names() -> None:
    sources = (
        StreamSource(name="O", filter_subject="a"),
        StreamSource(name="O", filter_subject="b"),
    )
    copy = Copy(sources=sources)
    names = [json.loads(each.payload)["config"]["name"] for each in copy.requests]
    stable = short_hash("S $G")
    assert names == [f"JS_SRC_{short_hash(f'{stable} O {each} >')}" for each in "ab"]


@pytest.mark.parametrize(
    ("source", "subject", "filters"),
    [
        (StreamSource(name="O", filter_subject="a.*"), "O.{name}.a.*", {"filter_subject": "a.*"}),
        (
            StreamSource(name="O", subject_transforms=(SubjectTransform(src="a.>", dest="b.>"),)),
            "O.{name}.a.>",
            {"filter_subject": "a.>"},
        ),
        (
            StreamSource(
                name="O",
                subject_transforms=(
                    SubjectTransform(src="a", dest="b"),
                    SubjectTransform(src="c", dest="d"),
                ),
            ),
            "O",
            {"filter_subjects": ["a", "c"]},
        ),
    ],
)
def test_filters_are_in_subject_if_there_is_one(
    source: StreamSource, subject: str, filters: dict[str, object]
) -> None:
    for fields in ({**MIRROR, "mirror": source}, {"sources": (source,)}):
        copy = Copy(**fields)
        wanted = "$JS.API.CONSUMER.CREATE." + subject.format(name=copy.asked["name"])
        assert copy.requests[0].subject == wanted
        assert {key: copy.asked[key] for key in copy.asked if "filter" in key} == filters


def test_origin_elsewhere_is_asked_and_delivers_under_other_names() -> None:
    copy = Copy(**{**MIRROR, "mirror": StreamSource(name="O", external=HUB)})
    assert copy.requests[0].subject == "$JS.hub.API.CONSUMER.CREATE.O"
    assert copy.asked["deliver_subject"].startswith("deliver.M.")


@pytest.mark.parametrize(
    ("start", "asked"),
    [
        ({}, {"deliver_policy": "all"}),
        ({"opt_start_seq": 5}, {"deliver_policy": "by_start_sequence", "opt_start_seq": 5}),
        (
            {"opt_start_time": NEW_YEAR},
            {"deliver_policy": "by_start_time", "opt_start_time": "2026-01-01T00:00:00Z"},
        ),
    ],
)
def test_empty_copy_begins_at_configured_start(
    start: dict[str, int], asked: dict[str, object]
) -> None:
    source = StreamSource(name="O", **start)  # type: ignore[arg-type]
    for fields in ({**MIRROR, "mirror": source}, {"sources": (source,)}):
        found = Copy(**fields).asked
        keys = ("deliver_policy", "opt_start_seq", "opt_start_time")
        assert {key: found[key] for key in keys if key in found} == asked


def test_given_consumer_is_asked_to_start_over() -> None:
    given = SourceConsumer(name="C", deliver_subject="d")
    copy = Copy(sources=(StreamSource(name="O", consumer=given),))
    assert copy.requests[0].subject == "$JS.API.CONSUMER.RESET.O.C"
    assert copy.requests[0].payload == b""


def test_answers_are_read_for_what_matters() -> None:
    body = {
        "name": "C",
        "config": {"deliver_subject": "d", "ack_policy": "flow_control", "name": "C"},
        "delivered": {"consumer_seq": 1, "stream_seq": 7, "last_active": "..."},
        "num_pending": 3,
    }
    made = read_answer(block({"Nats-Stream-Identity": "who"}), json.dumps(body).encode())
    assert made == ConsumerCreated("C", "d", 7, 3, True, "who")
    error = b'{"error":{"code":404,"err_code":10059,"description":"stream not found"}}'
    assert read_answer(b"", error) == ApiError(404, 10059, "stream not found")


@pytest.mark.parametrize("payload", [b"", b"{", b"{}", b"[]", b'{"name":"C"}', b"\xff"])
def test_invalid_answer_is_called_so(payload: bytes) -> None:
    assert read_answer(b"", payload) == NOT_AN_ANSWER
