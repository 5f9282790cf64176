"""What a stream says of itself beyond the reference: which one it is, and what it lost.

The reference says nothing, and a client that does not know the words is not disturbed by them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.levels import INCARNATION_KEY, LOSS_FLOOR_KEY
from support_servers import OURS

if TYPE_CHECKING:
    from support_assets import JetStream, Stream
    from support_servers import Implementation

WORDS = {INCARNATION_KEY, LOSS_FLOOR_KEY}


@pytest.fixture
def told(with_jetstream: Implementation) -> None:
    if with_jetstream is not OURS:
        pytest.skip("the reference does not tell")


def metadata(stream: Stream) -> dict[str, str]:
    found: dict[str, str] = stream.info()["config"]["metadata"]
    return found


def floor(stream: Stream) -> int:
    return int(metadata(stream)[LOSS_FLOOR_KEY])


# -- on both servers


def test_a_configuration_can_be_sent_back_as_it_was_shown(jetstream: JetStream) -> None:
    stream = jetstream.stream(metadata={"a": "1"})
    shown: dict[str, Any] = stream.info()["config"]
    for call in ("UPDATE", "CREATE"):
        answer = jetstream.done(f"STREAM.{call}.{stream.name}", shown | {"description": "d"})
        assert answer["config"]["metadata"].keys().isdisjoint(WORDS)
        assert answer["config"]["metadata"]["a"] == "1"


def test_only_the_description_of_one_stream_has_the_words(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    listed = jetstream.done("STREAM.LIST", {"subject": stream.subject(">")})["streams"]
    for config in (stream.created["config"], *(one["config"] for one in listed)):
        assert (config.get("metadata") or {}).keys().isdisjoint(WORDS)


# -- on ours


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_what_is_overwritten_is_not_lost_and_what_is_deleted_is(
    jetstream: JetStream, storage: str
) -> None:
    stream = jetstream.stream(max_msgs_per_subject=1, allow_rollup_hdrs=True, storage=storage)
    stream.fill("a", "b", "a", "b", "c")
    stream.publish("c", Nats_Rollup="sub")
    assert floor(stream) == 0
    jetstream.done(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 4})
    assert floor(stream) == 4
    jetstream.done(f"STREAM.PURGE.{stream.name}", {"filter": stream.subject("a")})
    assert floor(stream) == 4
    stream.publish("d", Nats_Rollup="all")
    assert floor(stream) == 6


@pytest.mark.usefixtures("told")
def test_words_that_were_sent_back_are_not_believed(jetstream: JetStream) -> None:
    stream = jetstream.stream(metadata={LOSS_FLOOR_KEY: "77", INCARNATION_KEY: "me"})
    assert floor(stream) == 0
    assert metadata(stream)[INCARNATION_KEY] != "me"


@pytest.mark.usefixtures("told")
def test_streams_are_told_apart_also_by_those_of_the_same_name(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    before = metadata(stream)[INCARNATION_KEY]
    assert before == metadata(stream)[INCARNATION_KEY]
    jetstream.done(f"STREAM.DELETE.{stream.name}")
    again = jetstream.stream(stream.name)
    assert metadata(again)[INCARNATION_KEY] != before
