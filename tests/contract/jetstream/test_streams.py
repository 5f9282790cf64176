"""The life of a stream: created, described, updated, listed, purged, deleted.

Which configurations are refused, and how, is in test_stream_config.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import pytest

from support.assets import SECOND, JetStream, unique
from support.jetstream import API, Refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import ServerUnderTest

ZERO_TIME = "0001-01-01T00:00:00Z"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?Z")
IN_USE = Refusal(400, 10058, "stream name already in use with a different configuration")
OVERLAP = Refusal(400, 10065, "subjects overlap with an existing stream")
NO_STREAM = Refusal(404, 10059, "stream not found")
BAD_REQUEST = Refusal(400, 10003, "bad request")
KIND = "io.nats.jetstream.api.v1."
DEFAULTS = {
    "retention": "limits",
    "max_consumers": -1,
    "max_msgs": -1,
    "max_bytes": -1,
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "discard": "old",
    "storage": "file",
    "num_replicas": 1,
    "duplicate_window": 120 * SECOND,
    "compression": "none",
    "allow_direct": False,
    "mirror_direct": False,
    "sealed": False,
    "deny_delete": False,
    "deny_purge": False,
    "allow_rollup_hdrs": False,
    "consumer_limits": {},
    "allow_msg_ttl": False,
}
EMPTY_STATE = {
    "messages": 0,
    "bytes": 0,
    "first_seq": 0,
    "first_ts": ZERO_TIME,
    "last_seq": 0,
    "last_ts": ZERO_TIME,
    "consumer_count": 0,
}


@pytest.fixture
def lonely(own_server: Callable[..., ServerUnderTest]) -> Iterator[JetStream]:
    """A client of a server without other streams."""
    with JetStream(own_server()) as client:
        yield client


def own_metadata(jetstream: JetStream) -> dict[str, str]:
    """What the server itself says of a stream without special needs."""
    version = jetstream.info["version"]
    return {"_nats.level": "5", "_nats.req.level": "0", "_nats.ver": version}


# -- created


def test_new_stream_is_described_in_full_and_in_this_order(jetstream: JetStream) -> None:
    created = jetstream.stream().created
    name = created["config"]["name"]
    assert TIME.fullmatch(created.pop("created"))
    assert TIME.fullmatch(created.pop("ts"))
    assert created == {
        "type": KIND + "stream_create_response",
        "config": {
            "name": name,
            "subjects": [f"{name}.>"],
            **DEFAULTS,
            "metadata": own_metadata(jetstream),
        },
        "state": EMPTY_STATE,
        "did_create": True,
    }
    assert [*created["config"]] == ["name", "subjects", *DEFAULTS, "metadata"]
    assert [*created["state"]] == [*EMPTY_STATE]


def test_stream_without_subjects_captures_its_name(jetstream: JetStream) -> None:
    name = unique("S")
    stream = jetstream.stream(name, subjects=[])
    assert stream.config["subjects"] == [name]
    assert jetstream.publish_ack(name) == {"stream": name, "seq": 1}


def test_creating_equal_stream_again_succeeds(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs=5)
    stream.publish("a")
    config = {"name": stream.name, "subjects": [f"{stream.name}.>"], "max_msgs": 5}
    again = jetstream.done(f"STREAM.CREATE.{stream.name}", config)
    assert again["did_create"] is True
    assert again["state"]["messages"] == 1
    assert again["created"] == stream.created["created"]


@pytest.mark.parametrize("change", [{"max_msgs": 6}, {"storage": "memory"}, {"description": "x"}])
def test_creating_different_stream_under_name_is_refused(
    jetstream: JetStream, change: dict[str, Any]
) -> None:
    stream = jetstream.stream(max_msgs=5)
    config = {"name": stream.name, "subjects": [f"{stream.name}.>"], "max_msgs": 5, **change}
    assert jetstream.refused(f"STREAM.CREATE.{stream.name}", config) == IN_USE


@pytest.mark.parametrize("theirs", ["{}.>", "{}.a", "{}.*", "*.a", ">"])
def test_subjects_of_streams_must_not_overlap(jetstream: JetStream, theirs: str) -> None:
    stream = jetstream.stream()
    name = unique("S")
    config = {"name": name, "subjects": [theirs.format(stream.name)], "no_ack": True}
    assert jetstream.refused(f"STREAM.CREATE.{name}", config) == OVERLAP


@pytest.mark.parametrize("first_seq", [0, 1])
def test_new_stream_shows_the_first_sequence_it_was_given(
    jetstream: JetStream, first_seq: int
) -> None:
    stream = jetstream.stream(first_seq=first_seq)
    assert (stream.state()["first_seq"], stream.state()["last_seq"]) == (first_seq, 0)


def test_first_sequence_can_be_chosen(jetstream: JetStream) -> None:
    stream = jetstream.stream(first_seq=1000)
    state = stream.state()
    assert (state["first_seq"], state["last_seq"], state["messages"]) == (1000, 999, 0)
    assert stream.publish("a")["seq"] == 1000


def test_user_metadata_is_kept_beside_servers(jetstream: JetStream) -> None:
    stream = jetstream.stream(metadata={"owner": "us", "_nats.ver": "ours"})
    expected = {"owner": "us", **own_metadata(jetstream)}
    assert stream.created["config"]["metadata"] == expected


@pytest.mark.parametrize(
    ("feature", "level"),
    [
        ({}, "0"),
        ({"allow_msg_ttl": True}, "1"),
        ({"subject_delete_marker_ttl": SECOND, "allow_msg_ttl": True}, "1"),
        ({"allow_msg_counter": True}, "2"),
        ({"allow_atomic": True}, "2"),
        ({"allow_msg_schedules": True}, "2"),
        ({"persist_mode": "async"}, "2"),
        ({"allow_batched": True}, "4"),
        ({"allow_batched": True, "allow_msg_ttl": True}, "4"),
    ],
)
def test_required_api_level_is_in_metadata(
    jetstream: JetStream, feature: dict[str, Any], level: str
) -> None:
    metadata = jetstream.stream(**feature).created["config"]["metadata"]
    assert metadata["_nats.req.level"] == level


# -- described


def test_info_names_leader_and_lists_subjects_only_on_request(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a")
    info = stream.info()
    assert info["cluster"] == {"leader": jetstream.info["server_name"]}
    assert (info["total"], info["offset"], info["limit"]) == (0, 0, 0)
    assert info["state"]["num_subjects"] == 1
    assert "subjects" not in info["state"]


def test_state_times_are_those_of_messages(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    state = stream.state()
    assert state["first_ts"] == stream.get(seq=1)["time"]
    assert state["last_ts"] == stream.get(seq=3)["time"]


@pytest.mark.parametrize(
    ("pattern", "counts"),
    [
        (">", {"a": 2, "b": 1, "c.d": 1}),
        ("*", {"a": 2, "b": 1}),
        ("a", {"a": 2}),
        ("nope", None),
        ("c.*", {"c.d": 1}),
    ],
)
def test_subjects_are_counted_on_request(
    jetstream: JetStream, pattern: str, counts: dict[str, int] | None
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "a", "c.d")
    info = stream.info(subjects_filter=stream.subject(pattern))
    wanted = counts and {stream.subject(rest): count for rest, count in counts.items()}
    assert info["state"].get("subjects") == wanted
    assert info["total"] == len(counts or ())
    assert info["limit"] == (100_000 if counts else 0)


def test_subjects_are_counted_from_offset(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c", "d")
    info = stream.info(subjects_filter=">", offset=3)
    assert (info["total"], info["offset"]) == (4, 3)
    assert len(info["state"]["subjects"]) == 1


@pytest.mark.parametrize(("offset", "shown"), [(-3, 0), (4, 4), (5, 5), (30, 30)])
def test_subjects_offset_may_exceed_the_end(jetstream: JetStream, offset: int, shown: int) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c", "d")
    info = stream.info(subjects_filter=">", offset=offset)
    assert (info["total"], info["offset"]) == (4, shown)
    assert len(info["state"].get("subjects", ())) == (4 if offset < 0 else 0)


def test_deleted_messages_are_listed_on_request(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c", "d", "e")
    for seq in (2, 4):
        stream.remove(seq)
    assert stream.state()["num_deleted"] == 2
    assert "deleted" not in stream.state()
    assert stream.state(deleted_details=True)["deleted"] == [2, 4]


def test_messages_removed_at_the_ends_are_not_listed_as_deleted(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    stream.remove(1)
    state = stream.state(deleted_details=True)
    assert (state["first_seq"], state["last_seq"], state.get("num_deleted", 0)) == (2, 3, 0)
    stream.remove(3)
    state = stream.state(deleted_details=True)
    assert (state["first_seq"], state["last_seq"], state.get("num_deleted")) == (2, 3, 1)


# -- updated


def test_update_replaces_whole_configuration(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_msgs=5, description="old", metadata={"a": "1"})
    body = {"name": stream.name, "subjects": [stream.subject("x")], "max_bytes": 9000}
    answer = jetstream.done(f"STREAM.UPDATE.{stream.name}", body)
    config = answer["config"]
    assert (config["max_msgs"], config["max_bytes"]) == (-1, 9000)
    assert "description" not in config
    assert config["metadata"] == own_metadata(jetstream)
    assert answer["type"] == KIND + "stream_update_response"
    assert "did_create" not in answer


def test_update_moves_subjects(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    other = unique("other")
    stream.update(subjects=[other])
    assert jetstream.publish_ack(other)["seq"] == 1
    gone = jetstream.request(stream.subject("a"))
    assert gone.status == "503"


def test_update_enforces_limits_at_once(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "a", "b", "a")
    stream.update(max_msgs_per_subject=1)
    assert stream.sequences() == [4, 5]
    stream.update(max_msgs=1)
    assert stream.sequences() == [5]


@pytest.mark.parametrize(
    ("config", "change", "refusal"),
    [
        ({}, {"storage": "memory"}, (500, 10052)),
        ({}, {"retention": "workqueue"}, (500, 10052)),
        ({"deny_delete": True}, {"deny_delete": False}, (500, 10052)),
        ({"deny_purge": True}, {"deny_purge": False}, (500, 10052)),
        ({}, {"num_replicas": 3}, (500, 10074)),
        ({}, {"max_age": 1}, (500, 10052)),
        ({}, {"mirror": {"name": "x"}, "subjects": []}, (400, 10055)),
        ({"allow_msg_ttl": True}, {"allow_msg_ttl": False}, (500, 10052)),
    ],
)
def test_immutable_fields_cannot_be_updated(
    jetstream: JetStream,
    config: dict[str, Any],
    change: dict[str, Any],
    refusal: tuple[int, int],
) -> None:
    stream = jetstream.stream(**config)
    before = stream.config
    assert stream.update_refused(**change)[:2] == refusal
    assert stream.config == before


def test_missing_stream_cannot_be_updated(jetstream: JetStream) -> None:
    body = {"name": "nope", "subjects": ["nope"]}
    assert jetstream.refused("STREAM.UPDATE.nope", body) == NO_STREAM
    mismatch = jetstream.refused("STREAM.UPDATE.other", body)
    assert mismatch.err_code == 10056


def test_sealing_cannot_be_undone(jetstream: JetStream) -> None:
    stream = jetstream.stream(max_age=3600 * SECOND, allow_rollup_hdrs=True)
    stream.publish("a")
    config = stream.update(sealed=True)["config"]
    assert (config["sealed"], config["max_age"], config["discard"]) == (True, 0, "new")
    assert (config["deny_delete"], config["deny_purge"]) == (True, True)
    assert config["allow_rollup_hdrs"] is False
    assert stream.refused("a").err_code == 10109
    assert jetstream.refused(f"STREAM.PURGE.{stream.name}").err_code == 10109
    removal = jetstream.refused(f"STREAM.MSG.DELETE.{stream.name}", {"seq": 1})
    assert removal.err_code == 10109
    assert stream.update_refused(sealed=False).err_code == 10052


# -- listed


def test_names_and_lists_are_sorted_and_paged(lonely: JetStream) -> None:
    for name in ("b", "a", "C"):
        lonely.stream(name)
    names = lonely.done("STREAM.NAMES")
    assert (names["streams"], names["total"], names["limit"]) == (["C", "a", "b"], 3, 1024)
    listed = lonely.done("STREAM.LIST")
    assert [one["config"]["name"] for one in listed["streams"]] == ["C", "a", "b"]
    assert (listed["total"], listed["offset"], listed["limit"]) == (3, 0, 256)


@pytest.mark.parametrize(
    ("offset", "shown", "names"),
    [(0, 0, ["a", "b"]), (1, 1, ["b"]), (2, 2, []), (9, 2, []), (-4, 0, ["a", "b"])],
)
def test_list_offset_is_clamped_to_the_end(
    lonely: JetStream, offset: int, shown: int, names: list[str]
) -> None:
    lonely.stream("a")
    lonely.stream("b")
    page = lonely.done("STREAM.NAMES", {"offset": offset})
    assert (page["offset"], page["streams"] or [], page["total"]) == (shown, names, 2)
    page = lonely.done("STREAM.LIST", {"offset": offset})
    found = [one["config"]["name"] for one in page["streams"] or []]
    assert (page["offset"], found) == (shown, names)


def test_names_of_no_streams_are_null(lonely: JetStream) -> None:
    assert lonely.done("STREAM.NAMES")["streams"] is None
    assert lonely.done("STREAM.LIST")["streams"] == []


@pytest.mark.parametrize(
    ("subject", "found"),
    [("{}.a", True), ("{}.>", True), ("*.a", True), ("{}", False), (">", True), ("nope", False)],
)
def test_streams_are_found_by_subject_they_may_hold(
    jetstream: JetStream, subject: str, found: bool
) -> None:
    stream = jetstream.stream()
    body = {"subject": subject.format(stream.name)}
    assert (stream.name in (jetstream.done("STREAM.NAMES", body)["streams"] or [])) is found
    listed = jetstream.done("STREAM.LIST", body)["streams"] or []
    assert (stream.name in [one["config"]["name"] for one in listed]) is found


def test_listed_stream_shows_only_its_required_api_level(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    listed = jetstream.done("STREAM.LIST", {"subject": stream.subject("a")})["streams"]
    assert [one["config"]["metadata"] for one in listed] == [{"_nats.req.level": "0"}]


# -- purged


@pytest.mark.parametrize(
    ("body", "purged", "left"),
    [
        ({}, 6, []),
        ({"filter": "a"}, 3, [2, 4, 6]),
        ({"filter": "*"}, 6, []),
        ({"filter": "nope"}, 0, [1, 2, 3, 4, 5, 6]),
        ({"seq": 3}, 2, [3, 4, 5, 6]),
        ({"seq": 1}, 0, [1, 2, 3, 4, 5, 6]),
        ({"seq": 7}, 6, []),
        ({"seq": 100}, 6, []),
        ({"keep": 2}, 4, [5, 6]),
        ({"keep": 6}, 0, [1, 2, 3, 4, 5, 6]),
        ({"filter": "a", "seq": 5}, 2, [2, 4, 5, 6]),
        ({"filter": "a", "keep": 1}, 2, [2, 4, 5, 6]),
        ({"filter": "b", "keep": 2}, 1, [1, 3, 4, 5, 6]),
    ],
)
def test_purge_removes_selected_messages(
    jetstream: JetStream, body: dict[str, Any], purged: int, left: list[int]
) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "a", "b", "a", "b")
    if "filter" in body:
        body = {**body, "filter": stream.subject(body["filter"])}
    assert stream.purge(**body) == purged
    assert stream.sequences() == left


def test_purge_of_everything_keeps_sequence_and_the_last_time(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b", "c")
    last = stream.state()["last_ts"]
    stream.purge()
    state = stream.state()
    assert (state["first_seq"], state["last_seq"], state["bytes"]) == (4, 3, 0)
    assert (state["first_ts"], state["last_ts"]) == (ZERO_TIME, last)
    assert stream.publish("a")["seq"] == 4


def test_purge_beyond_the_end_advances_sequence(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.fill("a", "b")
    assert stream.purge(seq=100) == 2
    state = stream.state()
    assert (state["first_seq"], state["last_seq"]) == (100, 99)


def test_purge_keeps_by_sequence_or_by_count(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    body = {"seq": 2, "keep": 1}
    assert jetstream.refused(f"STREAM.PURGE.{stream.name}", body) == BAD_REQUEST


def test_purge_can_be_denied(jetstream: JetStream) -> None:
    stream = jetstream.stream(deny_purge=True)
    stream.publish("a")
    refusal = jetstream.refused(f"STREAM.PURGE.{stream.name}")
    assert refusal == Refusal(500, 10110, "stream purge not permitted")


# -- deleted


def test_deleting_stream_deletes_its_consumers(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    consumer = stream.consumer()
    answer = jetstream.done(f"STREAM.DELETE.{stream.name}")
    assert answer == {"type": KIND + "stream_delete_response", "success": True}
    assert jetstream.refused(f"STREAM.INFO.{stream.name}") == NO_STREAM
    assert consumer.refused("INFO") == NO_STREAM
    assert jetstream.request(stream.subject("a")).status == "503"
    pull = jetstream.request(f"{API}CONSUMER.MSG.NEXT.{stream.name}.{consumer.name}")
    assert pull.status == "503"


def test_name_of_deleted_stream_can_be_used_again(jetstream: JetStream) -> None:
    stream = jetstream.stream()
    stream.publish("a")
    stream.delete()
    again = jetstream.stream(stream.name, storage="memory")
    assert again.created["state"] == EMPTY_STATE
