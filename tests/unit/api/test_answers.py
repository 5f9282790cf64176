"""Requests, answers and events as values: what they look like on the wire."""

from __future__ import annotations

import json

import pytest
from msgspec import Struct

from penstock.api import advisories, request_bodies, responses
from penstock.api.account_usage import AccountStats
from penstock.api.advisories import BatchAbandoned, ConsumerAck, Event, StreamAction, stamp
from penstock.api.json_codec import decode, encode
from penstock.api.refusals import STREAM_NOT_FOUND
from penstock.api.request_bodies import (
    PauseRequest,
    PurgeRequest,
    StreamConfigRequest,
    is_empty_body,
    is_json_body,
)
from penstock.api.responses import (
    AccountInfoResponse,
    MsgGetResponse,
    Response,
    RestoreResponse,
    StoredMessage,
    StreamCreateResponse,
    StreamNamesResponse,
    StreamPurgeResponse,
)
from penstock.api.stream_config import StreamConfig, StreamInfo


def structs_of(module: object, base: type[Struct]) -> list[type[Struct]]:
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value is not base
    ]
    return [kind for kind in found if kind.__module__ == module.__name__]  # type: ignore[attr-defined]


ANSWERS = [kind for kind in structs_of(responses, Response) if kind().type]  # type: ignore[attr-defined]
EVENTS = structs_of(advisories, Event)
REQUESTS = structs_of(request_bodies, Struct)


@pytest.mark.parametrize("kind", ANSWERS, ids=lambda kind: kind.__name__)
def test_refusal_begins_with_type_and_error(kind: type[Response]) -> None:
    written = json.loads(encode(kind.refused(STREAM_NOT_FOUND)))
    assert list(written)[:2] == ["type", "error"]
    assert written["type"].startswith("io.nats.jetstream.api.v1.")
    assert written["error"]["err_code"] == 10059


def test_types_are_each_ones_own() -> None:
    assert len({kind().type for kind in ANSWERS}) == len(ANSWERS)  # type: ignore[attr-defined]
    assert len({kind().type for kind in EVENTS}) == len(EVENTS)  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        (StreamNamesResponse, {"total": 0, "offset": 0, "limit": 0, "streams": None}),
        (StreamPurgeResponse, {"purged": 0}),
        (RestoreResponse, {"deliver_subject": ""}),
        (StreamCreateResponse, {}),
        (AccountInfoResponse, {}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_refusal_keeps_what_is_always_written(
    kind: type[Response], more: dict[str, object]
) -> None:
    written = json.loads(encode(kind.refused(STREAM_NOT_FOUND)))
    assert {key: written[key] for key in list(written)[2:]} == more


def test_information_stands_flat_between_the_other_fields() -> None:
    answer = StreamCreateResponse(info=StreamInfo(config=StreamConfig(name="A")), did_create=True)
    written = json.loads(encode(answer))
    assert list(written) == ["type", "config", "created", "state", "ts", "did_create"]


def test_account_shows_usage_before_domain_and_requests() -> None:
    written = json.loads(encode(AccountInfoResponse(stats=AccountStats(domain="d"))))
    assert list(written) == [
        "type", "memory", "storage", "reserved_memory", "reserved_storage", "streams",
        "consumers", "limits", "domain", "api",
    ]  # fmt: skip
    assert written["limits"]["max_streams"] == -1


def test_message_travels_as_base64() -> None:
    message = StoredMessage(subject="a", seq=2, hdrs=b"NATS/1.0\r\n\r\n", data=b"x", time=1)
    written = json.loads(encode(MsgGetResponse(message=message)))["message"]
    assert written == {
        "subject": "a",
        "seq": 2,
        "hdrs": "TkFUUy8xLjANCg0K",
        "data": "eA==",
        "time": "1970-01-01T00:00:00.000000001Z",
    }


# -- events


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_event_is_stamped_with_id_time_and_domain(kind: type[Event]) -> None:
    event = json.loads(stamp(kind(), id="I", timestamp_ns=1, domain="D"))
    assert list(event)[:3] == ["type", "id", "timestamp"]
    assert event["id"] == "I"
    assert event["timestamp"] == "1970-01-01T00:00:00.000000001Z"
    assert event["domain"] == "D"


def test_domain_has_its_place_in_each_event() -> None:
    batch = BatchAbandoned(stream="s", batch="b", reason="timeout")
    fields = list(json.loads(stamp(batch, id="I", timestamp_ns=1, domain="D")))
    assert fields[3:] == ["stream", "domain", "batch", "reason"]
    action = StreamAction(stream="s", action="create")
    assert "domain" not in json.loads(stamp(action, id="I", timestamp_ns=1, domain=""))


def test_metrics_have_types_of_their_own() -> None:
    assert ConsumerAck().type == "io.nats.jetstream.metric.v1.consumer_ack"


# -- requests


@pytest.mark.parametrize("kind", REQUESTS, ids=lambda kind: kind.__name__)
def test_empty_body_is_all_defaults(kind: type[Struct]) -> None:
    assert decode(kind, b"") == kind()


def test_configuration_is_taken_out_of_its_request() -> None:
    request = decode(StreamConfigRequest, b'{"name":"A","max_msgs":5,"pedantic":true}')
    assert request.pedantic
    assert request.config == StreamConfig(name="A", max_msgs=5)


def test_requests_are_read_by_their_fields() -> None:
    assert decode(PurgeRequest, b'{"filter":"a","keep":3}') == PurgeRequest(filter="a", keep=3)
    assert decode(PauseRequest, b'{"pause_until":"1970-01-01T00:00:01Z"}').pause_until == 10**9


@pytest.mark.parametrize("body", [b"", b"{}", b" { } ", b"\n{\n}"])
def test_object_without_keys_is_empty_body(body: bytes) -> None:
    assert is_empty_body(body)


@pytest.mark.parametrize("body", [b" ", b"[]", b"null", b'{"a":1}', b"x", b"{", b"[" * 100_000])
def test_anything_else_is_not(body: bytes) -> None:
    assert not is_empty_body(body)


def test_only_objects_and_lists_are_looked_at_where_body_may_be_anything() -> None:
    assert is_json_body(b' \n{"a":1}')
    assert is_json_body(b"[")
    assert not is_json_body(b"")
    assert not is_json_body(b"x{")
