"""Copies in hard times: origins that come, go, come again or lose messages; servers that stop.

What copies are like in good times is in `test_mirrors`. Origins are asked again after seconds, so
some of this takes as long as the slower server's patience.
"""

from __future__ import annotations

import base64
import contextlib
import random
import re
from typing import TYPE_CHECKING, Any

import nats
import pytest

from support.assets import SECOND, JetStream, Stream, unique
from support.jetstream import API, encode
from support.patience import PATIENCE_SECONDS
from support.schemas import check_answer
from support.servers import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import Implementation, ServerUnderTest

NOT_FOUND = {"code": 404, "err_code": 10059, "description": "stream not found"}
NOTE = re.compile(rb"\r\nNats-Stream-Source: (\S+) (\d+) (\S+) (\S+) (\S+) (\w{8})\r\n")


def wait_for(stream: Stream, sequences: list[int]) -> None:
    until(lambda: stream.sequences() == sequences, f"sequences {sequences}", PATIENCE_SECONDS)


def wait_for_count(stream: Stream, count: int) -> None:
    until(lambda: stream.state()["messages"] == count, f"{count} messages", PATIENCE_SECONDS)


def wait_for_some(stream: Stream, count: int) -> None:
    until(lambda: stream.state()["messages"] >= count, f"{count} and more", PATIENCE_SECONDS)


def header(stream: Stream, seq: int) -> bytes:
    return base64.b64decode(stream.get(seq=seq).get("hdrs", ""))


def note(stream: Stream, seq: int) -> tuple[bytes, ...]:
    found = NOTE.search(header(stream, seq))
    assert found is not None, header(stream, seq)
    return found.groups()


def publish_many(client: JetStream, stream: Stream, numbers: range) -> None:
    """Messages whose payloads are numbers; all are stored when it returns."""
    client.send(b"".join(encode(stream.subject("n"), b"%d" % n) for n in numbers))
    until(lambda: stream.state()["last_seq"] >= numbers[-1], "all are stored", PATIENCE_SECONDS)


def payloads(client: JetStream, stream: Stream) -> list[int]:
    """The numbers in a stream, in its order."""
    body = {"stream_name": stream.name, "config": {"deliver_policy": "all", "ack_policy": "none"}}
    name = client.done(f"CONSUMER.CREATE.{stream.name}", body)["name"]
    count = stream.state()["messages"]
    inbox = client.pull(stream.name, name, {"batch": count, "expires": 10 * SECOND})
    found = [int(message.payload) for message in inbox.take(count, PATIENCE_SECONDS)]
    inbox.close()
    client.done(f"CONSUMER.DELETE.{stream.name}.{name}")
    return found


# -- origins come and go


def test_origin_may_be_created_after_its_copies(jetstream: JetStream) -> None:
    name = unique("LATER")
    mirror = jetstream.stream(mirror={"name": name})
    copy = jetstream.stream(sources=[{"name": name}])
    until(
        lambda: mirror.info()["mirror"].get("error") == NOT_FOUND, "it is missed", PATIENCE_SECONDS
    )
    until(lambda: copy.info()["sources"][0].get("error") == NOT_FOUND, "so is it", PATIENCE_SECONDS)
    origin = jetstream.stream(name)
    origin.fill("a", "b")
    for one in (mirror, copy):
        wait_for(one, [1, 2])
    assert "error" not in mirror.info()["mirror"]
    assert "error" not in copy.info()["sources"][0]


def test_recreated_origin_is_copied_from_its_beginning(jetstream: JetStream) -> None:
    origin = jetstream.stream()
    origin.fill("a", "b")
    copy = jetstream.stream(sources=[{"name": origin.name}])
    wait_for(copy, [1, 2])
    origin.delete()
    again = jetstream.stream(origin.name)
    again.fill("c")
    wait_for(copy, [1, 2, 3])
    first, second = note(copy, 1), note(copy, 3)
    assert (first[1], second[1]) == (b"1", b"1")
    assert first[-1] != second[-1]
    assert copy.info()["sources"][0]["seq"] == 1


def test_mirror_waits_until_new_origin_has_more_than_it_has(jetstream: JetStream) -> None:
    origin = jetstream.stream(allow_direct=True)
    origin.fill("a", "b")
    mirror = jetstream.stream(mirror={"name": origin.name})
    wait_for(mirror, [1, 2])
    origin.delete()
    again = jetstream.stream(origin.name)
    again.fill("x", "y", "z")
    wait_for(mirror, [1, 2, 3])
    subjects = [mirror.get(seq=seq)["subject"] for seq in (1, 2, 3)]
    assert subjects == [origin.subject(rest) for rest in ("a", "b", "z")]


def test_mirror_serves_direct_gets_after_its_origin_is_deleted(jetstream: JetStream) -> None:
    origin = jetstream.stream(allow_direct=True)
    origin.fill("a", "b")
    mirror = jetstream.stream(mirror={"name": origin.name}, mirror_direct=True)
    wait_for(mirror, [1, 2])
    origin.delete()
    answer = jetstream.request(f"{API}DIRECT.GET.{origin.name}", {"seq": 2})
    assert (answer.payload, answer.headers["Nats-Stream"]) == (b"m2", mirror.name)
    answer = jetstream.request(f"{API}DIRECT.GET.{origin.name}.{origin.subject('a')}")
    assert answer.payload == b"m1"
    mirror.update(mirror=None)


# -- what the origin lost


def test_mirror_starts_where_its_origin_does(jetstream: JetStream) -> None:
    origin = jetstream.stream(first_seq=1000)
    origin.fill("a", "b")
    mirror = jetstream.stream(mirror={"name": origin.name})
    wait_for(mirror, [1000, 1001])
    assert mirror.state().get("num_deleted", 0) == 0


def test_mirror_of_empty_stream_starts_at_origins_next_sequence(
    jetstream: JetStream,
) -> None:
    origin = jetstream.stream()
    origin.fill("a", "b", "c")
    origin.purge()
    mirror = jetstream.stream(mirror={"name": origin.name})
    until(lambda: mirror.state()["last_seq"] == 3, "it knows what was removed", PATIENCE_SECONDS)
    origin.publish("d")
    wait_for(mirror, [4])
    assert mirror.state()["first_seq"] == 4


def test_messages_with_expectations_or_batches_do_not_reach_mirror(jetstream: JetStream) -> None:
    origin = jetstream.stream(allow_atomic=True)
    mirror = jetstream.stream(mirror={"name": origin.name})
    origin.publish("a", Nats_Expected_Stream=origin.name, Key="value")
    batch = {"Nats_Batch_Id": "b", "Nats_Batch_Sequence": "1", "Nats_Batch_Commit": "1"}
    origin.publish("b", b"", **batch)
    wait_for(mirror, [1, 2])
    assert header(mirror, 1) == b"NATS/1.0\r\nKey: value\r\n\r\n"
    assert header(mirror, 2) == b""


def test_chain_of_copies_records_nearest_origin(jetstream: JetStream) -> None:
    origin = jetstream.stream()
    origin.fill("a")
    first = jetstream.stream(sources=[{"name": origin.name}])
    second = jetstream.stream(sources=[{"name": first.name}])
    mirror = jetstream.stream(mirror={"name": first.name})
    for copy in (second, mirror):
        wait_for(copy, [1])
    assert note(first, 1)[0] == origin.name.encode()
    assert note(second, 1)[0] == first.name.encode()
    assert header(second, 1).count(b"Nats-Stream-Source") == 1
    assert header(mirror, 1) == header(first, 1)


# -- origins that keep messages for those who want them


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_copied_messages_are_acked_at_origin(jetstream: JetStream, retention: str) -> None:
    origin = jetstream.stream(retention=retention)
    copy = jetstream.stream(sources=[{"name": origin.name}])
    consumers = f"CONSUMER.NAMES.{origin.name}"
    until(lambda: jetstream.done(consumers)["consumers"] != [], "it reads", PATIENCE_SECONDS)
    [name] = jetstream.done(consumers)["consumers"]
    config = jetstream.done(f"CONSUMER.INFO.{origin.name}.{name}")["config"]
    assert re.fullmatch(r"JS_SRC_\w{8}", name)
    assert config["ack_policy"] == "flow_control"
    assert config["metadata"]["_nats.src.stream"] == copy.name
    assert (config["durable_name"], config["sourcing"]) == (name, True)
    origin.fill("a", "b", "c")
    wait_for(copy, [1, 2, 3])
    until(lambda: origin.sequences() == [], "the origin keeps nothing", PATIENCE_SECONDS)


def test_internal_consumer_is_deleted_with_its_copy(jetstream: JetStream) -> None:
    origin = jetstream.stream(retention="interest")
    mirror = jetstream.stream(mirror={"name": origin.name})
    copy = jetstream.stream(sources=[{"name": origin.name}])
    consumers = f"CONSUMER.NAMES.{origin.name}"
    until(lambda: len(jetstream.done(consumers)["consumers"]) == 2, "both read", PATIENCE_SECONDS)
    copy.update(sources=[], subjects=[f"{copy.name}.>"])
    mirror.update(mirror=None)
    until(lambda: jetstream.done(consumers)["consumers"] == [], "neither reads", PATIENCE_SECONDS)


def test_copy_may_use_existing_consumer(jetstream: JetStream) -> None:
    origin = jetstream.stream(retention="workqueue")
    deliver = f"{origin.name}-copy.deliver"
    made = origin.consumer(
        ack_policy="flow_control",
        deliver_subject=deliver,
        filter_subject=origin.subject("a"),
        flow_control=True,
        idle_heartbeat=SECOND,
    )
    origin.fill("a", "b", "a")
    given = {"name": made.name, "deliver_subject": deliver}
    copy = jetstream.stream(sources=[{"name": origin.name, "consumer": given}])
    wait_for(copy, [1, 2])
    assert [note(copy, seq)[1] for seq in (1, 2)] == [b"1", b"3"]
    until(lambda: origin.sequences() == [2], "copies are acknowledged", PATIENCE_SECONDS)


def test_existing_consumer_of_copy_must_ack_by_flow_control(jetstream: JetStream) -> None:
    origin = jetstream.stream()
    deliver = f"{origin.name}-copy.deliver"
    made = origin.consumer(ack_policy="none", deliver_subject=deliver)
    given = {"name": made.name, "deliver_subject": deliver}
    copies = [
        jetstream.stream(mirror={"name": origin.name, "consumer": given}),
        jetstream.stream(sources=[{"name": origin.name, "consumer": given}]),
    ]
    found: dict[str, Any] = {}

    def told() -> bool:
        infos = [copies[0].info()["mirror"], copies[1].info()["sources"][0]]
        found["codes"] = [one.get("error", {}).get("err_code") for one in infos]
        return None not in found["codes"]

    until(told, "both say so", PATIENCE_SECONDS)
    assert found["codes"] == [10214, 10217]


# -- who copies


def test_full_copy_resumes_when_it_has_space(jetstream: JetStream) -> None:
    origin = jetstream.stream()
    copy = jetstream.stream(sources=[{"name": origin.name}], max_msgs=2, discard="new")
    origin.fill("a", "b", "c", "d")
    wait_for(copy, [1, 2])
    copy.remove(1)
    wait_for(copy, [2, 3])
    copy.purge()
    wait_for(copy, [4])
    assert [note(copy, 4)[1]] == [b"4"]


def test_readded_source_resumes_at_its_position(jetstream: JetStream) -> None:
    origin = jetstream.stream()
    origin.fill("a", "b")
    copy = jetstream.stream(sources=[{"name": origin.name}], subjects=[unique("own.")])
    wait_for(copy, [1, 2])
    copy.update(sources=[])
    origin.fill("c", "d")
    copy.update(sources=[{"name": origin.name}])
    wait_for(copy, [1, 2, 3, 4])
    assert [note(copy, seq)[1] for seq in range(1, 5)] == [b"1", b"2", b"3", b"4"]


def test_one_origin_can_be_two_sources_of_stream(jetstream: JetStream) -> None:
    origin = jetstream.stream()
    origin.fill("a", "b")
    sources = [{"name": origin.name, "filter_subject": origin.subject(rest)} for rest in "ab"]
    copy = jetstream.stream(sources=sources)
    wait_for(copy, [1, 2])
    notes = {note(copy, seq)[1:3] for seq in (1, 2)}
    assert notes == {(b"1", origin.subject("a").encode()), (b"2", origin.subject("b").encode())}


def test_bucket_can_source_from_another(jetstream: JetStream) -> None:
    origin = jetstream.stream(unique("KV_"), subjects=["$KV.first.>"], max_msgs_per_subject=1)
    transforms = [{"src": "$KV.first.>", "dest": "$KV.second.>"}]
    copy = jetstream.stream(
        unique("KV_"),
        sources=[{"name": origin.name, "subject_transforms": transforms}],
        subjects=["$KV.second.>"],
        max_msgs_per_subject=1,
    )
    jetstream.publish_ack("$KV.first.key", b"one")
    wait_for(copy, [1])
    assert copy.get(last_by_subj="$KV.second.key")["data"] == base64.b64encode(b"one").decode()
    jetstream.publish_ack("$KV.first.key", b"two")
    wait_for(copy, [2])
    assert copy.get(last_by_subj="$KV.second.key")["data"] == base64.b64encode(b"two").decode()


async def test_sourced_bucket_works_with_client(jetstream: JetStream) -> None:
    client = await nats.connect(jetstream.server.url, allow_reconnect=False)
    with contextlib.closing(jetstream):
        context = client.jetstream()
        first, second = unique("B"), unique("B")
        bucket = await context.create_key_value(bucket=first)
        await bucket.put("k", b"v")
        await context.create_key_value(bucket=second)
        transforms = [{"src": f"$KV.{first}.>", "dest": f"$KV.{second}.>"}]
        copy = Stream(jetstream, f"KV_{second}", {})
        copy.update(sources=[{"name": f"KV_{first}", "subject_transforms": transforms}])
        wait_for(copy, [1])
        found = await (await context.key_value(second)).get("k")
        assert (found.value, found.revision) == (b"v", 1)
        for name in (first, second):
            await context.delete_key_value(name)
        await client.close()


# -- other domains


def test_origin_is_reached_through_its_domain(
    configured: Callable[..., JetStream], with_jetstream: Implementation
) -> None:
    if with_jetstream.name == "reference":
        pytest.skip("does not hear what it asks in a domain of its own")
    client = configured("jetstream { store_dir: store, domain: hub }\nport: -1\n")
    origin = client.stream()
    origin.fill("a", "b")
    external = {"api": "$JS.hub.API", "deliver": ""}
    mirror = client.stream(mirror={"name": origin.name, "external": external})
    copy = client.stream(sources=[{"name": origin.name, "external": external}])
    for one in (mirror, copy):
        wait_for(one, [1, 2])
    assert re.fullmatch(rb"%b:\w{8}" % origin.name.encode(), note(copy, 1)[0])
    assert mirror.info()["mirror"]["external"] == external


# -- servers stop


@contextlib.contextmanager
def life(server: ServerUnderTest) -> Iterator[JetStream]:
    with JetStream(server, check=check_answer) as client:
        yield client


MANY = 3_000


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("retention", ["limits", "workqueue"])
def test_killed_server_loses_and_repeats_no_copied_message(
    own_server: Callable[..., ServerUnderTest],
    with_jetstream: Implementation,
    retention: str,
    seed: int,
) -> None:
    server = own_server()
    chance = random.Random(seed)
    names = ["COPY"] if retention == "workqueue" else ["COPY", "MIRROR"]
    with life(server) as client:
        origin = client.stream("ORIGIN", retention=retention)
        publish_many(client, origin, range(1, MANY + 1))
        client.stream("COPY", sources=[{"name": "ORIGIN"}])
        if "MIRROR" in names:
            client.stream("MIRROR", mirror={"name": "ORIGIN"})
    for _ in range(2):
        with life(server) as client:
            wait_for_some(Stream(client, "COPY", {}), chance.randrange(MANY))
        server.restart()
    with life(server) as client:
        for name in names:
            copy = Stream(client, name, {})
            wait_for_count(copy, MANY)
            assert payloads(client, copy) == [*range(1, MANY + 1)]
        if retention == "workqueue" and with_jetstream.name == "ours":
            # The reference may keep what was acknowledged just before it was killed.
            origin = Stream(client, "ORIGIN", {})
            until(lambda: origin.state()["messages"] == 0, "all is acknowledged", PATIENCE_SECONDS)


@pytest.mark.parametrize("is_killed", [False, True])
def test_copies_removed_by_limits_are_not_copied_again(
    own_server: Callable[..., ServerUnderTest], is_killed: bool
) -> None:
    server = own_server()
    with life(server) as client:
        origins = [client.stream(name) for name in ("ONE", "TWO")]
        copy = client.stream("COPY", sources=[{"name": one.name} for one in origins], max_msgs=1)
        for place, origin in enumerate(origins, 1):
            origin.publish("a")
            wait_for(copy, [place])
    if not is_killed:
        server.stop()
    server.restart()
    with life(server) as client:
        copy = Stream(client, "COPY", {})
        for place, name in enumerate(("ONE", "TWO"), 3):
            Stream(client, name, {}).publish("b")
            wait_for(copy, [place])
        assert note(copy, 4)[1] == b"2"
        assert [one["seq"] for one in copy.info()["sources"] if one["name"] == "TWO"] == [2]
