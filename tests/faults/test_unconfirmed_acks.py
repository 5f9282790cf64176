"""Unconfirmed acknowledgements reach the disk by themselves, and then survive a kill.

How soon is a matter of a timer, and tried with a clock of our own (`unit/server/jetstream/
test_upkeep.py`). Here it is a matter of order: nothing else is asked of the server, its files are
looked at until they hold what was acknowledged, and only then it is killed.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest

from support.assets import JetStream, Stream, stream_sequences
from support.servers import OURS, ServerPool, until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES = 20
ACKED = 15
HOUR_NS = 3600 * 10**9


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[ServerPool]:
    servers = ServerPool(tmp_path / "servers")
    yield servers
    servers.close()


def floor_in(files: Path, pool: ServerPool) -> int:
    """How far a server comes that is started over these files."""
    server = pool.start(OURS, flags=("-js", "-sd", str(files)))
    try:
        with JetStream(server) as client:
            info = client.done("CONSUMER.INFO.S.c")
            floor: int = info["ack_floor"]["stream_seq"]
            return floor
    finally:
        server.kill()


def test_unconfirmed_acks_are_soon_on_disk_and_survive_kill(
    pool: ServerPool, tmp_path: Path
) -> None:
    server = pool.start(OURS, flags=("-js", "-sd", str(tmp_path / "store")))
    try:
        with JetStream(server) as client:
            stream = client.stream("S")
            stream.fill(*["a"] * MESSAGES)
            consumer = stream.consumer("c", ack_policy="explicit", ack_wait=HOUR_NS)
            for message in consumer.fetch(MESSAGES)[:ACKED]:
                client.publish(message.reply, b"+ACK")
            client.fence()

            def is_written() -> bool:
                """What a kill would leave now: files as they are, of a process that runs."""
                copy = tmp_path / "copy"
                shutil.rmtree(copy, ignore_errors=True)
                shutil.copytree(tmp_path / "store", copy)
                return floor_in(copy, pool) == ACKED

            until(is_written, "the acknowledgements are in files")
        server.restart()  # which kills it
        with JetStream(server) as client:
            info = client.done("CONSUMER.INFO.S.c")
            assert (info["ack_floor"]["stream_seq"], info["num_ack_pending"]) == (
                ACKED,
                MESSAGES - ACKED,
            )
            assert (
                stream_sequences(
                    client.pull("S", "c", {"batch": 1, "no_wait": True}).until_status()[:-1]
                )
                == []
            )
            Stream(client, "S", {}).publish("a")
            [new] = client.pull("S", "c", {"batch": 1}).take(1)
            assert stream_sequences([new]) == [MESSAGES + 1]
    finally:
        server.kill()
