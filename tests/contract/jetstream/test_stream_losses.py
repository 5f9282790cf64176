"""Identity and losses of a stream: the object `penstock` of `STREAM.INFO`.

The server reports it to clients that ask by a header, which the reference ignores.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.api.api_levels import FORMER_KEYS, PENSTOCK_HEADER
from support.servers import OURS, until

if TYPE_CHECKING:
    from support.assets import JetStream, Stream
    from support.servers import Implementation

INFO_FIELDS = ("type", "total", "offset", "limit", "config", "created", "state", "cluster", "ts")


@pytest.fixture
def told(with_jetstream: Implementation) -> None:
    if with_jetstream is not OURS:
        pytest.skip("the reference does not report losses")


def reported(stream: Stream) -> dict[str, Any]:
    info = stream.client.done(f"STREAM.INFO.{stream.name}", headers={PENSTOCK_HEADER: "1"})
    found: dict[str, Any] = info["penstock"]
    return found


def floor(stream: Stream) -> int:
    number: int = reported(stream)["loss_floor"]
    return number


# -- on both servers


def test_create_update_and_info_show_the_same_configuration(jetstream: JetStream) -> None:
    stream = jetstream.stream(metadata={"a": "1"})
    shown: dict[str, Any] = stream.info()["config"]
    assert stream.created["config"] == shown
    for call in ("UPDATE", "CREATE"):
        changed = shown | {"description": "d"}
        answer = jetstream.done(f"STREAM.{call}.{stream.name}", changed)
        assert answer["config"] == stream.info()["config"] == changed


def test_info_has_extra_fields_only_on_request(
    jetstream: JetStream,
) -> None:
    stream = jetstream.stream()
    assert [*stream.info()] == [*INFO_FIELDS]
    asked = jetstream.done(f"STREAM.INFO.{stream.name}", headers={PENSTOCK_HEADER: "1"})
    assert [key for key in asked if key != "penstock"] == [*INFO_FIELDS]


# -- on ours


@pytest.mark.usefixtures("told")
def test_only_info_of_one_stream_reports_incarnation_and_losses(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    listed = jetstream.done("STREAM.LIST", {"subject": stream.subject(">")})["streams"]
    updated = jetstream.done(f"STREAM.UPDATE.{stream.name}", stream.created["config"])
    for info in (stream.created, updated, stream.info(), *listed):
        assert "penstock" not in info
    assert reported(stream).keys() == {"incarnation", "loss_floor", "losses"}


@pytest.mark.usefixtures("told")
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_overwritten_messages_are_not_losses_and_deleted_ones_are(
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
@pytest.mark.parametrize("storage", ["file", "memory"])
def test_removals_by_request_are_counted_and_overwrites_are_not(
    jetstream: JetStream, storage: str
) -> None:
    stream = jetstream.stream(max_msgs_per_subject=2, allow_rollup_hdrs=True, storage=storage)
    stream.fill("a", "b", "a", "b", "c", "a", "b")
    stream.publish("c", Nats_Rollup="sub")
    assert reported(stream)["losses"] == 0
    jetstream.done(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 6})
    until(lambda: reported(stream)["losses"] == 1, "the count")
    jetstream.done(f"STREAM.PURGE.{stream.name}", {"filter": stream.subject("b"), "keep": 1})
    jetstream.done(f"STREAM.PURGE.{stream.name}", {"filter": stream.subject("b")})
    until(lambda: reported(stream)["losses"] == 2, "the count")
    stream.publish("d", Nats_Rollup="all")
    until(lambda: reported(stream)["losses"] == 4, "the count")


@pytest.mark.usefixtures("told")
def test_metadata_keys_of_earlier_versions_are_dropped(jetstream: JetStream) -> None:
    stream = jetstream.stream(metadata=dict.fromkeys(FORMER_KEYS, "77"))
    assert stream.info()["config"]["metadata"].keys().isdisjoint(FORMER_KEYS)
    assert floor(stream) == 0


@pytest.mark.usefixtures("told")
def test_recreated_stream_has_another_incarnation(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    before = reported(stream)["incarnation"]
    assert before == reported(stream)["incarnation"]
    jetstream.done(f"STREAM.DELETE.{stream.name}")
    again = jetstream.stream(stream.name)
    assert reported(again)["incarnation"] != before
