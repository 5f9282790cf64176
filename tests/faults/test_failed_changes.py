"""Changes that fail half way: the answer is 500, and everything is as it was, also after a restart.

A server in this process; each step that builds a part of a stream or consumer is made to raise, as
often as it is called. The step is a defect by definition, so no other error will do.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import pytest

import penstock
from support.assets import JetStream, Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

INTERNAL = (500, 10051)

PARTS = [
    "penstock.jetstream.streams.stream_parts:Transform",
    "penstock.jetstream.streams.stream_parts:Republisher",
    "penstock.jetstream.streams.stream_parts:Progress",
    "penstock.jetstream.streams.stream_parts:limits_of",
]
SERVING = [
    "penstock.server.jetstream.account_runtime:AccountRuntime._listen_for",
    "penstock.server.jetstream.source_subscriptions:SourceSubscriptions.follow",
    "penstock.jetstream.sources.source_reader:Progress",
    "penstock.jetstream.handlers.stream_handlers:show_stream",
]
STREAM_CREATE = [
    *PARTS,
    *SERVING,
    "penstock.jetstream.host.asset_files:SlotFile.create",
    "penstock.jetstream.account.asset_factory:FileStore.open",
    "penstock.jetstream.account.asset_factory:Stream",
    "penstock.jetstream.account.asset_factory:StreamHost",
    "penstock.jetstream.account.assets:Assets.recount",
    "penstock.server.jetstream.stream_driver:StreamDriver.open_lane",
]
STREAM_UPDATE = [
    *PARTS,
    *SERVING,
    "penstock.jetstream.host.asset_files:StreamFiles.save",
    "penstock.jetstream.streams.applier:Applier._update",
    "penstock.jetstream.streams.stream:Stream._reconfigure",
    "penstock.jetstream.host.stream_host:StreamHost.config_changed",
    "penstock.jetstream.account.assets:Assets.changed",
]
CONSUMER_CREATE = [
    "penstock.jetstream.account.asset_factory:Consumer",
    "penstock.jetstream.account.asset_factory:surroundings",
    "penstock.jetstream.host.asset_files:ConsumerFiles.save",
    "penstock.jetstream.host.stream_host:StreamHost.add_consumer",
    "penstock.server.jetstream.account_runtime:AccountRuntime.watch",
    "penstock.jetstream.handlers.consumer_handlers:show_consumer",
]
CONSUMER_UPDATE = [
    "penstock.jetstream.consumers.consumer:Consumer.update",
    "penstock.jetstream.host.asset_files:ConsumerFiles.save",
    "penstock.jetstream.host.chores:Chores.sweep",
    "penstock.server.jetstream.account_runtime:AccountRuntime.watch",
    "penstock.jetstream.handlers.consumer_handlers:show_consumer",
]


class Place:
    """Where a client connects."""

    def __init__(self, server: penstock.ThreadedServer) -> None:
        self.address = ("127.0.0.1", server.port)


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Callable[[], JetStream]]:
    """Starts a server over the same files again and again; the one before is stopped first."""
    running: list[penstock.ThreadedServer] = []
    clients: list[JetStream] = []

    def stop() -> None:
        while clients:
            clients.pop().close()
        while running:
            running.pop().stop()

    def start() -> JetStream:
        stop()
        server = penstock.ThreadedServer(port=-1, jetstream=True, store_dir=str(tmp_path))
        server.start()
        running.append(server)
        place: Any = Place(server)
        clients.append(JetStream(place))
        return clients[-1]

    yield start
    stop()


@pytest.fixture
def broken() -> Callable[[str], Callable[[], None]]:
    """Makes a step raise, until what it returns is called."""

    def arm(step: str) -> Callable[[], None]:
        module, _, path = step.partition(":")
        owner: Any = importlib.import_module(module)
        *way, name = path.split(".")
        for each in way:
            owner = getattr(owner, each)

        def fail(*_: object, **__: object) -> None:
            raise RuntimeError(f"{step} was made to fail")

        patch = pytest.MonkeyPatch()
        is_static = isinstance(vars(owner).get(name), (classmethod, staticmethod))
        patch.setattr(owner, name, staticmethod(fail) if is_static else fail)
        return patch.undo

    return arm


def refused_with_500(client: JetStream, subject: str, body: object) -> None:
    refused = client.refused(subject, body)
    assert (refused.code, refused.err_code) == INTERNAL, refused


def no_stream_takes(client: JetStream, subject: str) -> bool:
    return b"503" in client.request(subject).header


def everything(name: str, **changes: Any) -> dict[str, Any]:
    """A configuration that needs every part."""
    return {
        "name": name,
        "subjects": [f"{name}.>", f"{name}2.>"],
        "sources": [{"name": "ORIGIN", "subject_transforms": [{"src": "ORIGIN.>", "dest": "o.>"}]}],
        "subject_transform": {"src": f"{name}.*", "dest": f"{name}.t.{{{{wildcard(1)}}}}"},
        "republish": {"src": ">", "dest": "again.>"},
        "max_msgs": 100,
        **changes,
    }


@pytest.mark.parametrize("step", STREAM_CREATE)
def test_failed_creation_leaves_no_stream(
    life: Callable[[], JetStream], broken: Callable[[str], Callable[[], None]], step: str
) -> None:
    client = life()
    other = client.stream("OTHER")
    mend = broken(step)
    try:
        refused_with_500(client, "STREAM.CREATE.S", everything("S"))
    finally:
        mend()
    assert client.refused("STREAM.INFO.S").err_code == 10059
    assert client.done("STREAM.NAMES")["streams"] == ["OTHER"]
    assert no_stream_takes(client, "S.x")
    assert client.done("INFO")["streams"] == 1
    other.fill("a")
    client = life()
    assert client.done("STREAM.NAMES")["streams"] == ["OTHER"]
    client.done("STREAM.CREATE.S", everything("S"))
    assert Stream(client, "S", {}).publish("x")["seq"] == 1


@pytest.mark.parametrize("step", STREAM_UPDATE)
def test_failed_update_leaves_stream_as_it_was(
    life: Callable[[], JetStream], broken: Callable[[str], Callable[[], None]], step: str
) -> None:
    client = life()
    stream = client.stream("S", subjects=["S.>", "old.>"])
    stream.fill("a", "b", "c")
    before = stream.info()
    mend = broken(step)
    try:
        refused_with_500(client, "STREAM.UPDATE.S", everything("S", max_msgs=1000))
    finally:
        mend()

    def check(client: JetStream, seq: int) -> None:
        kept = Stream(client, "S", {})
        assert kept.info()["config"] == before["config"]
        assert kept.publish("x")["seq"] == seq
        assert client.publish_ack("old.x")["seq"] == seq + 1
        assert no_stream_takes(client, "S2.x")
        assert client.done("STREAM.NAMES", {"subject": "old.x"})["streams"] == ["S"]

    check(client, 4)
    client = life()
    check(client, 6)
    client.done("STREAM.UPDATE.S", everything("S", max_msgs=1000))
    assert client.publish_ack("S2.x")["seq"] == 8
    client.done("STREAM.DELETE.S")
    assert client.refused("STREAM.INFO.S").err_code == 10059


@pytest.mark.parametrize("step", CONSUMER_CREATE)
def test_failed_creation_leaves_no_consumer(
    life: Callable[[], JetStream], broken: Callable[[str], Callable[[], None]], step: str
) -> None:
    client = life()
    stream = client.stream("S")
    stream.fill("a")
    body = {"stream_name": "S", "config": {"durable_name": "C", "deliver_subject": "to"}}
    mend = broken(step)
    try:
        refused_with_500(client, "CONSUMER.CREATE.S.C", body)
    finally:
        mend()
    for _ in range(2):
        assert client.refused("CONSUMER.INFO.S.C").err_code == 10014
        assert client.done("CONSUMER.NAMES.S")["consumers"] == []
        assert Stream(client, "S", {}).state()["consumer_count"] == 0
        client = life()
    inbox = client.subscribe("to")
    client.done("CONSUMER.CREATE.S.C", body)
    assert inbox.next().subject == "S.a"


@pytest.mark.parametrize("step", CONSUMER_UPDATE)
def test_failed_update_leaves_consumer_as_it_was(
    life: Callable[[], JetStream], broken: Callable[[str], Callable[[], None]], step: str
) -> None:
    client = life()
    stream = client.stream("S", retention="interest")
    config = {"durable_name": "C", "deliver_subject": "to", "ack_policy": "explicit"}
    body: dict[str, Any] = {"stream_name": "S", "config": config}
    client.done("CONSUMER.CREATE.S.C", body)
    stream.fill("a", "b")
    before = client.done("CONSUMER.INFO.S.C")
    other = {**config, "deliver_subject": "elsewhere", "filter_subject": "S.b"}
    mend = broken(step)
    try:
        refused_with_500(client, "CONSUMER.CREATE.S.C", {**body, "config": other})
        if step.endswith((":ConsumerFiles.save", ":Consumer.update")):
            refused_with_500(client, "CONSUMER.PAUSE.S.C", {"pause_until": "2099-01-01T00:00:00Z"})
    finally:
        mend()
    for _ in range(2):
        assert client.done("CONSUMER.INFO.S.C")["config"] == before["config"]
        assert Stream(client, "S", {}).sequences() == [1, 2]
        client = life()
    inbox = client.subscribe("to")
    assert [inbox.next().subject for _ in range(2)] == ["S.a", "S.b"]
    inbox.close()
    client.done("CONSUMER.CREATE.S.C", {**body, "config": other})
    client.done("CONSUMER.DELETE.S.C")


@pytest.mark.parametrize("step", ["_fill", "_send"])
def test_snapshot_ends_with_500_if_step_raises(
    life: Callable[[], JetStream], broken: Callable[[str], Callable[[], None]], step: str
) -> None:
    client = life()
    stream = client.stream("S")
    stream.fill("a", "b")
    inbox = client.subscribe()
    mend = broken(f"penstock.jetstream.archive.snapshot_session:SnapshotSession.{step}")
    try:
        client.done("STREAM.SNAPSHOT.S", {"deliver_subject": inbox.subject})
        assert inbox.next().header.startswith(b"NATS/1.0 500 internal failure")
    finally:
        mend()
    client.done("STREAM.SNAPSHOT.S", {"deliver_subject": inbox.subject})
    assert inbox.next().payload


def test_stream_deleted_during_its_snapshot_is_missing(life: Callable[[], JetStream]) -> None:
    client = life()
    stream = client.stream("S")
    for _ in range(40):
        stream.publish("a", bytes(range(256)) * 32)
    inbox = client.subscribe()
    body = {"deliver_subject": inbox.subject, "chunk_size": 1024, "window_size": 1024}
    client.done("STREAM.SNAPSHOT.S", body)
    chunk = inbox.next()
    stream.delete()
    while chunk.reply:
        client.publish(chunk.reply)
        chunk = inbox.next()
    assert chunk.header.startswith(b"NATS/1.0 500")
    assert client.refused("STREAM.INFO.S").err_code == 10059
