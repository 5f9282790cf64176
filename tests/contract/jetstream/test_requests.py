"""Requests in general: who answers, what an empty body is, how JSON is read, levels of the API.

Nothing here depends on what a request is about; each noun has a file of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.assets import JetStream
from support.jetstream import API, Client, Refusal
from support.servers import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from support.servers import Implementation, ServerPool, ServerUnderTest

LEVEL_HEADER = "Nats-Required-Api-Level"
LEVEL_REFUSED = Refusal(412, 10185, "JetStream minimum api level required")
NOT_EMPTY = Refusal(400, 10038, "expected an empty request payload")
BAD_REQUEST = Refusal(400, 10003, "bad request")
NOT_CLUSTERED = Refusal(503, 10010, "JetStream clustering support required")
NO_CONSUMER = Refusal(404, 10014, "consumer not found")
NO_STREAM = Refusal(404, 10059, "stream not found")
OTHER_STREAM = Refusal(400, 10056, "stream name in subject does not match request")
EMPTY = [b"", b"{}", b" { } "]
NOT_OBJECTS = [b"[1]", b'"s"', b"garbage", b'{"x":1}']


def invalid(text: str) -> Refusal:
    return Refusal(400, 10025, f"invalid JSON: {text}")


# -- who answers


@pytest.mark.parametrize(
    "api",
    [
        "NOPE",
        "STREAM",
        "STREAM.CREATE",
        "STREAM.CREATE.a.b",
        "STREAM.INFO.a.b",
        "STREAM.NAMES.x",
        "STREAM.TEMPLATE.NAMES",
        "CONSUMER.INFO.a",
        "META.LEADER.STEPDOWN",
        "SERVER.REMOVE",
        "ACCOUNT.PURGE.$G",
    ],
)
def test_unknown_api_subject_gets_no_reply_and_no_503(jetstream: JetStream, api: str) -> None:
    inbox = jetstream.subscribe()
    jetstream.publish(API + api, b"", reply=inbox.subject)
    jetstream.done("INFO")
    assert inbox.waiting() == []


def test_request_without_reply_subject_is_performed(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    jetstream.publish(f"{API}STREAM.DELETE.{stream.name}")
    names = f"CONSUMER.NAMES.{stream.name}"
    until(lambda: "error" in jetstream.call(names), "the stream is deleted")


def test_without_jetstream_there_are_no_responders(
    pool: ServerPool, with_jetstream: Implementation
) -> None:
    with Client(pool.get(with_jetstream).address) as client:
        answer = client.request(f"{API}INFO")
    assert answer.header == b"NATS/1.0 503\r\nNats-Subject: $JS.API.INFO\r\n\r\n"


@pytest.mark.parametrize(
    ("api", "refusal"),
    [
        ("STREAM.INFO.nope", NO_STREAM),
        ("STREAM.DELETE.nope", NO_STREAM),
        ("STREAM.PURGE.nope", NO_STREAM),
        ("CONSUMER.NAMES.nope", NO_STREAM),
        ("CONSUMER.LIST.nope", NO_STREAM),
        ("CONSUMER.INFO.nope.c", NO_STREAM),
        ("CONSUMER.DELETE.nope.c", NO_STREAM),
        ("CONSUMER.INFO.{s}.nope", NO_CONSUMER),
        ("CONSUMER.DELETE.{s}.nope", NO_CONSUMER),
        ("CONSUMER.PAUSE.{s}.nope", NO_CONSUMER),
        ("STREAM.LEADER.STEPDOWN.{s}", NOT_CLUSTERED),
        ("STREAM.LEADER.STEPDOWN.nope", NOT_CLUSTERED),
        ("CONSUMER.LEADER.STEPDOWN.{s}.nope", NOT_CLUSTERED),
        ("STREAM.PEER.REMOVE.{s}", NOT_CLUSTERED),
        ("STREAM.PEER.EVACUATE.{s}", NOT_CLUSTERED),
        ("STREAM.CANCEL_MOVE.{s}", NOT_CLUSTERED),
    ],
)
def test_request_about_missing_asset_is_refused(
    jetstream: JetStream, api: str, refusal: Refusal
) -> None:
    assert jetstream.refused(api.format(s=jetstream.stream().name)) == refusal


@pytest.mark.parametrize(
    ("api", "body", "more"),
    [
        ("STREAM.INFO.nope", b"", {"total": 0, "offset": 0, "limit": 0}),
        ("STREAM.PURGE.nope", b"", {"purged": 0}),
        ("STREAM.NAMES", b"[1]", {"total": 0, "offset": 0, "limit": 0, "streams": None}),
        ("STREAM.LIST", b"[1]", {"total": 0, "offset": 0, "limit": 0, "streams": []}),
        ("CONSUMER.LIST.nope", b"", {"total": 0, "offset": 0, "limit": 0, "consumers": []}),
        ("CONSUMER.NAMES.nope", b"", {"total": 0, "offset": 0, "limit": 0, "consumers": []}),
        ("STREAM.RESTORE.nope", b"", {"deliver_subject": ""}),
        (
            "CONSUMER.PAUSE.{s}.nope",
            b"",
            {"paused": False, "pause_until": "0001-01-01T00:00:00Z"},
        ),
        ("STREAM.MSG.GET.nope", b'{"seq":1}', {}),
        ("STREAM.DELETE.nope", b"", {}),
        ("CONSUMER.INFO.nope.c", b"", {}),
    ],
)
def test_refusal_carries_required_fields_of_its_response_type(
    jetstream: JetStream, api: str, body: bytes, more: dict[str, object]
) -> None:
    answer = jetstream.call(api.format(s=jetstream.stream().name), body)
    del answer["error"], answer["type"]
    assert answer == more


# -- bodies


@pytest.mark.parametrize("body", EMPTY)
@pytest.mark.parametrize(
    ("api", "refusal"),
    [
        ("STREAM.MSG.GET.{s}", BAD_REQUEST),
        ("STREAM.MSG.DELETE.{s}", BAD_REQUEST),
        ("STREAM.SNAPSHOT.{s}", BAD_REQUEST),
        ("STREAM.RESTORE.{s}", BAD_REQUEST),
        ("STREAM.CREATE.{s}", OTHER_STREAM),
        ("CONSUMER.CREATE.{s}", OTHER_STREAM),
        ("CONSUMER.CREATE.{s}.c", OTHER_STREAM),
        ("CONSUMER.DURABLE.CREATE.{s}.c", OTHER_STREAM),
        ("STREAM.DELETE.nope", NO_STREAM),
        ("CONSUMER.INFO.{s}.nope", NO_CONSUMER),
    ],
)
def test_body_without_content_counts_as_empty(
    jetstream: JetStream, api: str, refusal: Refusal, body: bytes
) -> None:
    assert jetstream.refused(api.format(s=jetstream.stream().name), body) == refusal


@pytest.mark.parametrize("body", [b"null", *NOT_OBJECTS])
@pytest.mark.parametrize(
    "api", ["STREAM.DELETE.nope", "CONSUMER.INFO.{s}.nope", "CONSUMER.DELETE.{s}.nope"]
)
def test_unexpected_body_is_refused_first(jetstream: JetStream, api: str, body: bytes) -> None:
    assert jetstream.refused(api.format(s=jetstream.stream().name), body) == NOT_EMPTY


@pytest.mark.parametrize("body", [b"null", b'"s"', b"garbage", b"7"])
@pytest.mark.parametrize(
    "api",
    [
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.INFO.{s}",
        "STREAM.PURGE.{s}",
        "CONSUMER.NAMES.{s}",
        "CONSUMER.LIST.{s}",
        "INFO",
    ],
)
def test_optional_body_that_is_not_object_is_ignored(
    jetstream: JetStream, api: str, body: bytes
) -> None:
    jetstream.done(api.format(s=jetstream.stream().name), body)


@pytest.mark.parametrize(
    "api",
    [
        "STREAM.NAMES",
        "STREAM.LIST",
        "STREAM.INFO.{s}",
        "STREAM.PURGE.{s}",
        "STREAM.MSG.GET.{s}",
        "STREAM.MSG.DELETE.{s}",
        "STREAM.SNAPSHOT.{s}",
        "STREAM.RESTORE.{s}",
        "STREAM.CREATE.{s}",
        "STREAM.UPDATE.{s}",
        "CONSUMER.CREATE.{s}",
        "CONSUMER.CREATE.{s}.c",
        "CONSUMER.DURABLE.CREATE.{s}.c",
        "CONSUMER.NAMES.{s}",
        "CONSUMER.LIST.{s}",
        "CONSUMER.PAUSE.{s}.c",
    ],
)
def test_unknown_field_is_refused_by_name(jetstream: JetStream, api: str) -> None:
    refusal = jetstream.refused(api.format(s=jetstream.stream().name), b'{"x":1}')
    assert refusal == invalid('json: unknown field "x"')


# -- JSON


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (b'"max_msgs":"5"}', "into Go struct field StreamConfigRequest.max_msgs of type int64"),
        (b'"max_msgs":1.5}', "cannot unmarshal number 1.5"),
        (b'"max_msgs":1e3}', "cannot unmarshal number 1e3"),
        (b'"max_msgs":99999999999999999999}', "cannot unmarshal number 99999999999999999999"),
        (b'"max_msg_size":5000000000}', "of type int32"),
        (b'"max_age":"5s"}', "of type time.Duration"),
        (b'"subjects":"n2"}', "of type []string"),
        (b'"metadata":{"a":1}}', "StreamConfigRequest.metadata.a of type string"),
        (b'"placement":[]}', "cannot unmarshal array into"),
        (b'"retention":"foo"}', 'can not unmarshal "\\"foo\\""'),
        (b'"retention":1}', 'can not unmarshal "1"'),
        (b'"storage":"foo"}', 'can not unmarshal "\\"foo\\""'),
        (b'"discard":"x"}', 'can not unmarshal "\\"x\\""'),
        (b'"persist_mode":"x"}', 'can not unmarshal "\\"x\\""'),
        (b'"compression":"zip"}', "unknown compression algorithm"),
        (b'"foo":1,"bar":2}', 'json: unknown field "foo"'),
        (b'"mirror":{"name":"x","foo":1}}', 'json: unknown field "foo"'),
        (b'"description":"x"', "unexpected EOF"),
        (b'"description":"x"} x', "invalid character 'x' looking for beginning of value at offset"),
        (b"}", "invalid character '}' looking for beginning of object key string at offset"),
    ],
)
def test_json_of_wrong_type_is_refused(jetstream: JetStream, more: bytes, text: str) -> None:
    code, err_code, description = jetstream.refused("STREAM.CREATE.N2", b'{"name":"N2",' + more)
    assert (code, err_code) == (400, 10025)
    assert description.startswith("invalid JSON: ")
    assert text in description


@pytest.mark.parametrize(
    "body",
    [
        b'{"NAME":"N3","Subjects":["n3"],"MaX_mSgS":7}',
        b'{"name":"N3","subjects":["n3"],"max_msgs":7,"max_bytes":null,"mirror":null}',
        b' \r\n\t{"name":"N3","subjects":["n3"],"max_msgs":7} \n',
        b'{"name":"x","name":"N3","subjects":["n3"],"max_msgs":7}',
    ],
    ids=["case of keys", "null is absent", "blanks", "the last of equal keys"],
)
def test_json_is_read_as_leniently_as_by_go(jetstream: JetStream, body: bytes) -> None:
    config = jetstream.done("STREAM.CREATE.N3", body)["config"]
    jetstream.done("STREAM.DELETE.N3")
    assert (config["name"], config["subjects"], config["max_msgs"]) == ("N3", ["n3"], 7)


def test_angle_brackets_and_ampersands_are_escaped(jetstream: JetStream) -> None:
    stream = jetstream.stream(description="<a&b>")
    raw = jetstream.request(f"{API}STREAM.INFO.{stream.name}").payload
    assert b'"description":"\\u003ca\\u0026b\\u003e"' in raw
    assert b'.\\u003e"]' in raw


# -- levels


@pytest.mark.parametrize("level", ["6", "x", "99999999999999999999", "5 x"])
@pytest.mark.parametrize(
    "api",
    ["INFO", "STREAM.NAMES", "STREAM.INFO.{s}", "STREAM.CREATE.{s}", "CONSUMER.INFO.{s}.c"],
)
def test_required_api_level_above_servers_is_refused_first(
    jetstream: JetStream, api: str, level: str
) -> None:
    stream = jetstream.stream()
    refusal = jetstream.refused(api.format(s=stream.name), None, {LEVEL_HEADER: level})
    assert refusal == LEVEL_REFUSED


@pytest.mark.parametrize("level", ["0", "5", "-1", ""])
def test_supported_api_level_is_accepted(jetstream: JetStream, level: str) -> None:
    jetstream.done("STREAM.NAMES", None, {LEVEL_HEADER: level})


@pytest.mark.parametrize("level", ["6", "x"])
def test_direct_get_above_api_level_is_refused_with_status(
    jetstream: JetStream, level: str
) -> None:
    stream = jetstream.stream(allow_direct=True)
    consumer = stream.consumer()
    for api, body in (
        (f"CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}", b""),
        (f"DIRECT.GET.{stream.name}", b'{"seq":1}'),
        (f"DIRECT.GET.{stream.name}.{stream.name}.a", b""),
    ):
        answer = jetstream.request(API + api, body, {LEVEL_HEADER: level})
        assert answer.header == b"NATS/1.0 412 Required Api Level\r\n\r\n"


# -- the account


def test_account_counts_its_assets_and_requests(
    own_server: Callable[..., ServerUnderTest],
) -> None:
    with JetStream(own_server()) as jetstream:
        stream = jetstream.stream(storage="memory", max_bytes=1000)
        stream.consumer()
        stream.publish("a", b"x" * 100)
        jetstream.refused("STREAM.INFO.nope")
        account = jetstream.done("INFO")
    size = len(stream.subject("a")) + 100 + 16
    assert account == {
        "type": "io.nats.jetstream.api.v1.account_info_response",
        "memory": size,
        "storage": 0,
        "reserved_memory": 1000,
        "reserved_storage": 0,
        "streams": 1,
        "consumers": 1,
        "limits": {
            "max_memory": -1,
            "max_storage": -1,
            "max_streams": -1,
            "max_consumers": -1,
            "max_ack_pending": -1,
            "memory_max_stream_bytes": -1,
            "storage_max_stream_bytes": -1,
            "max_bytes_required": False,
        },
        "api": {"level": 5, "total": 3, "errors": 1},
    }
