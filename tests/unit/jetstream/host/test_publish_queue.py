"""Publishes that wait for a block keep order and bounds, and none is refused without a reply."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.api.stream_config import StreamConfig
from penstock.base.effects import Fetch, Send
from penstock.base.message import Inbound
from penstock.jetstream.host import publish_queue
from penstock.jetstream.host.publish_queue import TOO_MANY_HEADER, PublishQueue
from penstock.jetstream.host.stream_host import StreamHost
from penstock.jetstream.streams.entries import NotLoaded
from penstock.jetstream.streams.stream import Stream
from penstock.store.memstore import MemStore
from support.hosts import committed, effects_of

if TYPE_CHECKING:
    from penstock.jetstream.streams.entries import Answer, Publish

NOW_NS = 1_800_000_000_000_000_000


def message(number: int, payload: bytes = b"") -> Inbound:
    return Inbound("s", f"reply.{number}", b"", payload)


class ColdStream(Stream):
    """Needs a block that is not in memory for whatever it is to plan, until it is warmed."""

    cold = True

    def plan(self, msg: Inbound, now_ns: int) -> Publish | Answer | NotLoaded:
        return NotLoaded(None) if self.cold else super().plan(msg, now_ns)  # type: ignore[arg-type, return-value]


@pytest.fixture
def host() -> StreamHost:
    config = StreamConfig(name="S", subjects=("s",))
    return StreamHost(ColdStream(config, MemStore(), created_ns=NOW_NS), None)


def answers(host: StreamHost) -> dict[str, Send]:
    left = [*effects_of(host), *committed(host)]
    return {each.subject: each for each in left if isinstance(each, Send)}


def test_bytes_are_bounded_as_well_as_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_queue, "WAITING_BYTES_MAX", 1000)
    waiting = PublishQueue()
    assert waiting.add(message(1, bytes(900)))
    assert not waiting.add(message(2, bytes(900)))
    assert waiting.take() == message(1, bytes(900))
    assert waiting.add(message(2, bytes(900))), "what was taken makes room"


def test_one_that_is_put_back_is_the_next_again() -> None:
    waiting = PublishQueue()
    waiting.add(message(1))
    waiting.add(message(2))
    waiting.put_back(waiting.take())
    assert [waiting.take(), waiting.take()] == [message(1), message(2)]
    assert not waiting


def test_messages_that_waited_are_stored_in_order(host: StreamHost) -> None:
    for number in range(5):
        host.publish(message(number, b"%d" % number), NOW_NS)
    assert [type(each) for each in effects_of(host)] == [Fetch], "one block is asked for once"
    host.stream.cold = False  # type: ignore[attr-defined]
    host.fetched(NOW_NS)
    sequences = {to: json.loads(sent.payload)["seq"] for to, sent in answers(host).items()}
    assert sequences == {f"reply.{number}": number + 1 for number in range(5)}


def test_request_without_room_is_refused(host: StreamHost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_queue, "WAITING_MAX", 2)
    for number in range(3):
        host.publish(message(number), NOW_NS)
    refused = answers(host)
    assert list(refused) == ["reply.2"]
    assert refused["reply.2"].header == TOO_MANY_HEADER
    assert json.loads(refused["reply.2"].payload)["error"]["err_code"] == 10167
