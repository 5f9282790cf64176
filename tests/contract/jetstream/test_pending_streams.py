"""Requests that follow each other without waiting for the reply: streams made and deleted.

The files of a stream are made and removed on another thread; requests sent meanwhile must find the
stream as if that had been done at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream, unique
from support.servers import OURS

if TYPE_CHECKING:
    from support.jetstream import Json


def asked(client: JetStream, *requests: tuple[str, Any]) -> list[Json]:
    """The replies to requests that were all sent at once, in the order of the requests."""
    inboxes = [client.subscribe() for _ in requests]
    for (api, body), inbox in zip(requests, inboxes, strict=True):
        payload = b"" if body is None else json.dumps(body).encode()
        client.publish(f"$JS.API.{api}", payload, reply=inbox.subject)
    return [inbox.next().json for inbox in inboxes]


@pytest.fixture(autouse=True)
def _only_ours(jetstream: JetStream) -> None:
    """The reference serves requests that were sent together in any order."""
    if jetstream.server.implementation is not OURS:
        pytest.skip("the reference does not keep the order")


def config(name: str, *subjects: str, **more: Any) -> Json:
    return {"name": name, "subjects": list(subjects or [f"{name}.>"]), **more}


def test_stream_requested_twice_is_created_once(jetstream: JetStream) -> None:
    name = unique("P")
    one, other, info = asked(
        jetstream,
        (f"STREAM.CREATE.{name}", config(name)),
        (f"STREAM.CREATE.{name}", config(name)),
        (f"STREAM.INFO.{name}", None),
    )
    assert "error" not in one
    assert one["created"] == other["created"] == info["created"]
    jetstream.done(f"STREAM.DELETE.{name}")


def test_subjects_of_stream_being_created_are_reserved(jetstream: JetStream) -> None:
    one, other = unique("P"), unique("P")
    with JetStream(jetstream.server) as second:
        inbox, late = jetstream.subscribe(), second.subscribe()
        jetstream.publish(
            f"$JS.API.STREAM.CREATE.{one}", json.dumps(config(one)).encode(), reply=inbox.subject
        )
        jetstream.fence()
        body = json.dumps(config(other, f"{one}.a")).encode()
        second.publish(f"$JS.API.STREAM.CREATE.{other}", body, reply=late.subject)
        assert "error" not in inbox.next().json
        assert late.next().json["error"]["err_code"] == 10065
    jetstream.done(f"STREAM.DELETE.{one}")


def test_stream_is_recreated_after_deletion(jetstream: JetStream) -> None:
    name = unique("P")
    jetstream.done(f"STREAM.CREATE.{name}", config(name))
    assert jetstream.publish_ack(f"{name}.a", b"old")["seq"] == 1
    replies = asked(
        jetstream,
        (f"STREAM.DELETE.{name}", None),
        (f"STREAM.INFO.{name}", None),
        (f"STREAM.CREATE.{name}", config(name)),
        (f"STREAM.INFO.{name}", None),
        (f"STREAM.DELETE.{name}", None),
        (f"STREAM.DELETE.{name}", None),
    )
    assert [reply.get("error", {}).get("err_code") for reply in replies] == [
        None,
        10059,
        None,
        None,
        None,
        10059,
    ]
    assert replies[3]["state"]["messages"] == 0


def test_consumer_is_created_after_its_stream(jetstream: JetStream) -> None:
    name = unique("P")
    stream, consumer, deleted = asked(
        jetstream,
        (f"STREAM.CREATE.{name}", config(name)),
        (f"CONSUMER.CREATE.{name}.C", {"stream_name": name, "config": {"durable_name": "C"}}),
        (f"STREAM.DELETE.{name}", None),
    )
    assert "error" not in stream
    assert consumer["stream_name"] == name
    assert deleted["success"]
