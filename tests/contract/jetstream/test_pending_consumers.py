"""Requests that follow each other without waiting for the reply: consumers made, changed, deleted.

Their files are written on disk threads, several at a time; requests sent meanwhile must find the
consumers as if that had been done at once.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import JetStream, unique
from support.servers import OURS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.jetstream import Json

MANY = 50


def asked(client: JetStream, *requests: tuple[str, Any]) -> list[Json]:
    """The replies to requests that were all sent at once, in the order of the requests."""
    inboxes = [client.subscribe() for _ in requests]
    for (api, body), inbox in zip(requests, inboxes, strict=True):
        payload = b"" if body is None else json.dumps(body).encode()
        client.publish(f"$JS.API.{api}", payload, reply=inbox.subject)
    return [inbox.next().json for inbox in inboxes]


@pytest.fixture
def name(jetstream: JetStream) -> Iterator[str]:
    if jetstream.server.implementation is not OURS:
        pytest.skip("the reference does not keep the order")
    stream = unique("P")
    jetstream.done(f"STREAM.CREATE.{stream}", {"name": stream, "subjects": [f"{stream}.>"]})
    yield stream
    jetstream.done(f"STREAM.DELETE.{stream}")


def create(stream: str, consumer: str, **more: Any) -> tuple[str, Json]:
    config = {"durable_name": consumer, "ack_policy": "explicit", **more}
    return f"CONSUMER.CREATE.{stream}.{consumer}", {"stream_name": stream, "config": config}


def codes(replies: list[Json]) -> list[int | None]:
    return [reply.get("error", {}).get("err_code") for reply in replies]


def test_list_shows_consumers_requested_earlier(jetstream: JetStream, name: str) -> None:
    creations = [create(name, f"C{number:02}") for number in range(MANY)]
    *made, names = asked(jetstream, *creations, (f"CONSUMER.NAMES.{name}", None))
    assert [reply["name"] for reply in made] == [f"C{number:02}" for number in range(MANY)]
    assert names["consumers"] == [f"C{number:02}" for number in range(MANY)]


def test_last_update_of_consumer_wins(jetstream: JetStream, name: str) -> None:
    changes = [create(name, "C", description=str(number)) for number in range(MANY)]
    *replies, info = asked(jetstream, *changes, (f"CONSUMER.INFO.{name}.C", None))
    said = [reply["config"]["description"] for reply in replies]
    assert said == [str(number) for number in range(MANY)]
    assert info["config"]["description"] == str(MANY - 1)


def test_consumer_is_recreated_after_deletion(jetstream: JetStream, name: str) -> None:
    jetstream.publish_ack(f"{name}.a", b"x")
    jetstream.done(*create(name, "C"))
    inbox = jetstream.subscribe()
    jetstream.publish(f"$JS.API.CONSUMER.MSG.NEXT.{name}.C", b"1", reply=inbox.subject)
    inbox.next()
    replies = asked(
        jetstream,
        (f"CONSUMER.DELETE.{name}.C", None),
        (f"CONSUMER.INFO.{name}.C", None),
        create(name, "C"),
        (f"CONSUMER.INFO.{name}.C", None),
        (f"CONSUMER.DELETE.{name}.C", None),
        (f"CONSUMER.DELETE.{name}.C", None),
    )
    assert codes(replies) == [None, 10014, None, None, None, 10014]
    assert replies[3]["num_ack_pending"] == 0


def test_consumers_being_written_count_towards_limit(jetstream: JetStream, name: str) -> None:
    config = {"name": name, "subjects": [f"{name}.>"], "max_consumers": 2}
    jetstream.done(f"STREAM.DELETE.{name}")
    jetstream.done(f"STREAM.CREATE.{name}", config)
    replies = asked(
        jetstream,
        *(create(name, consumer) for consumer in "ABC"),
        (f"CONSUMER.DELETE.{name}.A", None),
        create(name, "C"),
    )
    assert codes(replies) == [None, None, 10026, None, None]


def test_stream_is_deleted_after_its_consumers_were_written(
    jetstream: JetStream, name: str
) -> None:
    creations = [create(name, f"C{number}") for number in range(MANY)]
    replies = asked(
        jetstream,
        *creations,
        (f"STREAM.DELETE.{name}", None),
        (f"STREAM.CREATE.{name}", {"name": name, "subjects": [f"{name}.>"]}),
        (f"CONSUMER.NAMES.{name}", None),
    )
    assert codes(replies) == [None] * (MANY + 3)
    assert replies[-1]["consumers"] == []


def test_pauses_and_stream_updates_keep_their_order(jetstream: JetStream, name: str) -> None:
    config = {"name": name, "subjects": [f"{name}.>"], "description": "new"}
    replies = asked(
        jetstream,
        create(name, "C"),
        (f"CONSUMER.PAUSE.{name}.C", {"pause_until": "2099-01-01T00:00:00Z"}),
        (f"STREAM.UPDATE.{name}", config),
        (f"CONSUMER.PAUSE.{name}.C", None),
        (f"CONSUMER.INFO.{name}.C", None),
        (f"STREAM.INFO.{name}", None),
    )
    assert codes(replies) == [None] * 6
    assert (replies[1]["paused"], replies[3]["paused"]) == (True, False)
    assert not replies[4].get("paused")
    assert replies[5]["config"]["description"] == "new"
