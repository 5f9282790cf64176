"""Cost of a copy for the server: a mirror and a source, compared with the reference.

    python benchmarks/copies.py [MESSAGES]

Penstock and `nats-server`, in sequence, each in its own process with files in a temporary
directory. CPU is the server's, user and system; the rate covers the time from the request until
everything is copied. Origin and copy are in the same server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import nats
from nats.js.api import StreamConfig, StreamSource

if TYPE_CHECKING:
    from nats.js import JetStreamContext

HERE = Path(sys.executable).parent
SERVERS = {
    "reference": [str(HERE / "nats-server")],
    "ours": [sys.executable, "-m", "penstock", "serve"],
}
SUBJECTS = 1000
PAYLOAD = b"x" * 100
FLUSH_EVERY = 1000
LOOK_EVERY_SECONDS = 0.01


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


async def wait_for(js: JetStreamContext, stream: str, messages: int) -> None:
    info = await js.stream_info(stream)
    while info.state.messages < messages:
        await asyncio.sleep(LOOK_EVERY_SECONDS)
        info = await js.stream_info(stream)


async def measured(name: str, port: int, pid: int, messages: int) -> None:
    client = await nats.connect(f"nats://127.0.0.1:{port}")
    js = client.jetstream()
    await js.add_stream(StreamConfig(name="O", subjects=["o.>"]))
    for number in range(messages):
        await client.publish(f"o.{number % SUBJECTS}", PAYLOAD)
        if number % FLUSH_EVERY == 0:
            await client.flush()
    await wait_for(js, "O", messages)
    origin = StreamSource(name="O")
    copies = {
        "mirror": StreamConfig(name="mirror", mirror=origin),
        "source": StreamConfig(name="source", sources=[origin]),
    }
    for kind, config in copies.items():
        begun, spent = time.monotonic(), cpu_seconds(pid)
        await js.add_stream(config)
        await wait_for(js, kind, messages)
        told(name, kind, messages, time.monotonic() - begun, cpu_seconds(pid) - spent)
    await client.close()


def told(name: str, kind: str, messages: int, seconds: float, cpu: float) -> None:
    rate, each = messages / seconds, cpu / messages * 1e6
    print(f"{name:10}{kind:10}{rate:12.0f} msg/s{each:8.2f} us CPU each", flush=True)


def main() -> None:
    messages = int(sys.argv[1]) if len(sys.argv) > 1 else 200_000
    for name, command in SERVERS.items():
        port = free_port()
        with tempfile.TemporaryDirectory() as directory:
            where = ["-js", "-sd", directory, "-a", "127.0.0.1", "-p", str(port)]
            server = subprocess.Popen(
                [*command, *where], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            try:
                await_port(port)
                asyncio.run(measured(name, port, server.pid, messages))
            finally:
                server.terminate()
                server.wait()


def await_port(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


if __name__ == "__main__":
    main()
