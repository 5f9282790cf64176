"""The event loop does not wait for the disk when streams and consumers are made or changed."""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import penstock
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from support.assets import JetStream
from support.peers import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

LATER = "2099-01-01T00:00:00Z"
COUNT = 20


class Place:
    """Where a client connects."""

    def __init__(self, server: penstock.ThreadedServer) -> None:
        self.address = ("127.0.0.1", server.port)


@contextmanager
def connected(directory: Path) -> Iterator[JetStream]:
    server = penstock.ThreadedServer(port=-1, jetstream=True, store_dir=str(directory))
    server.start()
    try:
        place: Any = Place(server)
        client = JetStream(place)
        try:
            yield client
        finally:
            client.close()
    finally:
        server.stop()


@contextmanager
def watched_syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the threads that sync, while this lasts."""
    threads: list[str] = []

    def spied(call: Callable[[int], None]) -> Callable[[int], None]:
        def spy(fd: int) -> None:
            threads.append(threading.current_thread().name)
            call(fd)

        return spy

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", spied(os.fdatasync))
        patch.setattr(os, "fsync", spied(os.fsync))
        yield threads


def test_consumer_and_stream_changes_sync_on_disk_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with connected(tmp_path) as client:
        stream = client.stream("S")
        with watched_syncs(monkeypatch) as threads:
            for number in range(COUNT):
                config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
                body = {"stream_name": "S", "config": config}
                client.done(f"CONSUMER.CREATE.S.C{number}", body)
                config["description"] = "changed"
                client.done(f"CONSUMER.CREATE.S.C{number}", body)
                client.done(f"CONSUMER.PAUSE.S.C{number}", {"pause_until": LATER})
                client.done(f"CONSUMER.DELETE.S.C{number}")
            client.done("STREAM.UPDATE.S", {**stream.info()["config"], "description": "changed"})
            client.done("STREAM.DELETE.S")
    assert len(threads) > 4 * COUNT
    assert set(threads) == {"disk"}


def test_first_deliveries_of_consumers_create_files_on_disk_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []
    create = ConsumerStateStore.create

    def spy(*args: Any, **named: Any) -> ConsumerStateStore:
        threads.append(threading.current_thread().name)
        return create(*args, **named)

    monkeypatch.setattr(ConsumerStateStore, "create", staticmethod(spy))
    with connected(tmp_path) as client:
        client.stream("S").fill("a")
        inbox = client.subscribe()
        for number in range(COUNT):
            config = {"durable_name": f"C{number}", "ack_policy": "explicit"}
            client.done(f"CONSUMER.CREATE.S.C{number}", {"stream_name": "S", "config": config})
            subject = f"$JS.API.CONSUMER.MSG.NEXT.S.C{number}"
            client.publish(subject, b"1", reply=inbox.subject)
            message = inbox.next()
            assert message.reply
            if number % 2:  # the reply to the ack waits for the files; else they follow soon
                assert client.request(message.reply, b"+ACK").payload == b""
        until(lambda: len(threads) == COUNT, "every consumer has files for its state")
    assert set(threads) == {"disk"}
