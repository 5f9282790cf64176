"""Cost of archives for the server: snapshot and restore of a stream, compared with the reference.

    python benchmarks/archives.py [ROUNDS]

Penstock and `nats-server` alternate, each in its own process with files in a temporary directory.
CPU is the server's, user and system, all threads. During a transfer another client requests the
account statistics repeatedly: `stall` is its longest wait for a reply, in ms.
"""

from __future__ import annotations

import asyncio
import json
import random
import statistics
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple

import nats
from nats.js.api import StreamConfig

from copies import FLUSH_EVERY, SERVERS, await_port, cpu_seconds, free_port, wait_for

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.aio.msg import Msg

PATIENCE_SECONDS = 60
ASK_EVERY_SECONDS = 0.02
CHUNK_BYTES = 128 << 10
UNANSWERED_MAX = 32
"""Chunks in flight during a restore, as in the command line tools."""
WORDS = [random.Random(1).randbytes(size).hex() for size in range(2, 40)]
"""Words of the payloads, which compress to about half."""


class Shape(NamedTuple):
    messages: int
    bytes_each: int


SHAPES = {"100 B": Shape(200_000, 100), "1 KiB": Shape(40_000, 1024)}


class Figure(NamedTuple):
    seconds: float
    cpu: float
    stall: float


def payloads(shape: Shape) -> list[bytes]:
    """Return a few hundred different payloads, composed of words."""
    draw = random.Random(shape.bytes_each)
    made = []
    for _ in range(500):
        text = " ".join(draw.choices(WORDS, k=shape.bytes_each // 8))
        made.append(text[: shape.bytes_each].encode())
    return made


async def fill(client: Client, shape: Shape) -> None:
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="A", subjects=["a.>"]))
    bodies = payloads(shape)
    for number in range(shape.messages):
        await client.publish(f"a.{number % 1000}", bodies[number % len(bodies)])
        if number % FLUSH_EVERY == 0:
            await client.flush()
    await wait_for(js, "A", shape.messages)


async def take(client: Client) -> tuple[dict[str, object], list[bytes]]:
    """Take a snapshot, and acknowledge every chunk."""
    chunks: list[bytes] = []
    whole = asyncio.get_running_loop().create_future()

    async def received(message: Msg) -> None:
        if not message.data:
            whole.set_result(message.headers)
            return
        chunks.append(message.data)
        if message.reply:
            await client.publish(message.reply)

    inbox = client.new_inbox()
    heard = await client.subscribe(inbox, cb=received, pending_bytes_limit=1 << 30)
    body = {"deliver_subject": inbox, "chunk_size": CHUNK_BYTES}
    answer = await client.request("$JS.API.STREAM.SNAPSHOT.A", json.dumps(body).encode())
    told = json.loads(answer.data)
    assert "error" not in told, told
    await asyncio.wait_for(whole, PATIENCE_SECONDS)
    await heard.unsubscribe()
    return told, chunks


async def bring_back(client: Client, told: dict[str, object], chunks: list[bytes]) -> None:
    body = {"config": told["config"], "state": told["state"]}
    answer = await client.request("$JS.API.STREAM.RESTORE.A", json.dumps(body).encode())
    to = json.loads(answer.data)["deliver_subject"]
    free = asyncio.Semaphore(UNANSWERED_MAX)

    async def received(_message: Msg) -> None:
        free.release()

    inbox = client.new_inbox()
    heard = await client.subscribe(inbox, cb=received)
    for chunk in chunks:
        await free.acquire()
        await client.publish(to, chunk, reply=inbox)
    for _ in range(UNANSWERED_MAX):
        await free.acquire()
    await heard.unsubscribe()
    end = await client.request(to, b"", timeout=PATIENCE_SECONDS)
    restored = json.loads(end.data)
    assert "error" not in restored, restored
    assert restored["state"]["messages"] == told["state"]["messages"], restored  # type: ignore[index]


async def longest_wait(client: Client, is_over: asyncio.Event) -> float:
    longest = 0.0
    while not is_over.is_set():
        begun = time.monotonic()
        await client.request("$JS.API.INFO", b"", timeout=PATIENCE_SECONDS)
        longest = max(longest, time.monotonic() - begun)
        await asyncio.sleep(ASK_EVERY_SECONDS)
    return longest


async def measured(port: int, pid: int, shape: Shape) -> dict[str, Figure]:
    url = f"nats://127.0.0.1:{port}"
    client = await nats.connect(url, pending_size=1 << 28)
    other = await nats.connect(url)
    await fill(client, shape)
    figures: dict[str, Figure] = {}
    told: dict[str, object] = {}
    chunks: list[bytes] = []
    for kind in ("snapshot", "restore"):
        is_over = asyncio.Event()
        asking = asyncio.create_task(longest_wait(other, is_over))
        await asyncio.sleep(0.1)
        begun, spent = time.monotonic(), cpu_seconds(pid)
        if kind == "snapshot":
            told, chunks = await take(client)
        else:
            await bring_back(client, told, chunks)
        seconds, cpu = time.monotonic() - begun, cpu_seconds(pid) - spent
        is_over.set()
        figures[kind] = Figure(seconds, cpu, await asking)
        if kind == "snapshot":
            await client.jetstream().delete_stream("A")
    await other.close()
    await client.close()
    return figures


def run(name: str, shape: Shape) -> dict[str, Figure]:
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        where = ["-js", "-sd", directory, "-a", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(
            [*SERVERS[name], *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        try:
            await_port(port)
            return asyncio.run(measured(port, server.pid, shape))
        finally:
            server.terminate()
            server.wait()


def middle(figures: list[Figure]) -> Figure:
    return Figure(*(statistics.median(each) for each in zip(*figures, strict=True)))


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    print(f"{'':20}{'reference':>24}{'ours':>24}{'rate x':>8}{'CPU x':>8}")
    for title, shape in SHAPES.items():
        runs: dict[str, list[dict[str, Figure]]] = {name: [] for name in SERVERS}
        for _ in range(rounds):
            for name in SERVERS:
                runs[name].append(run(name, shape))
        for kind in ("snapshot", "restore"):
            there, here = (
                middle([each[kind] for each in runs[name]]) for name in ("reference", "ours")
            )
            cells = "".join(
                f"{f.seconds:7.2f} s{f.cpu:6.2f} cpu{f.stall * 1e3:5.0f}" for f in (there, here)
            )
            ratios = f"{there.seconds / here.seconds:8.2f}{there.cpu / here.cpu:8.2f}"
            print(f"{kind + ' ' + title:20}{cells}{ratios}", flush=True)


if __name__ == "__main__":
    main()
