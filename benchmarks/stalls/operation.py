"""One row of the table: an operation of a client, and its preparation.

An operation is a generator function over a `Site`. The code before its first `yield` prepares; the
code after it is measured; a second `yield`, if present, ends the measurement.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.bench.bench_error import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.stalls.site import Json, Peer, Site

FILL_WINDOW = 2_000
FILL_S = 120.0
API = "$JS.API."


@dataclass(frozen=True, slots=True)
class Operation:
    """A named attack."""

    name: str
    run: Callable[[Site], Iterator[None]]


OPERATIONS: list[Operation] = []


def operation(
    name: str,
) -> Callable[[Callable[[Site], Iterator[None]]], Callable[[Site], Iterator[None]]]:
    """Add an operation to the table."""

    def add(run: Callable[[Site], Iterator[None]]) -> Callable[[Site], Iterator[None]]:
        OPERATIONS.append(Operation(name, run))
        return run

    return add


def create_stream(peer: Peer, name: str, **config: object) -> Json:
    return peer.must(f"{API}STREAM.CREATE.{name}", {"name": name, **config})


def update_stream(peer: Peer, name: str, **config: object) -> Json:
    return peer.must(f"{API}STREAM.UPDATE.{name}", {"name": name, **config})


def create_consumer(peer: Peer, stream: str, name: str, **config: object) -> Json:
    body = {"stream_name": stream, "config": {"durable_name": name, **config}}
    return peer.ask(f"{API}CONSUMER.DURABLE.CREATE.{stream}.{name}", body)


def fill(
    peer: Peer, stream: str, count: int, subject: Callable[[int], str], size: int = 16
) -> None:
    """Publish `count` messages, `FILL_WINDOW` at a time, and wait until all are acknowledged."""
    payload, reply = b"x" * size, f"{peer.inbox}.f".encode()
    for first in range(0, count, FILL_WINDOW):
        numbers = range(first, min(first + FILL_WINDOW, count))
        wanted = peer.replies + len(numbers)
        peer.send(
            b"".join(
                b"PUB %b %b %d\r\n%b\r\n" % (subject(i).encode(), reply, size, payload)
                for i in numbers
            )
        )
        if not peer.wait_replies(wanted, FILL_S):
            raise BenchError(f"{stream} was not filled in {FILL_S:.0f} s")


def wait_until(peer: Peer, stream: str, is_done: Callable[[Json], bool], seconds: float) -> bool:
    """Poll the stream's state until it is as wanted."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if is_done(peer.must(f"{API}STREAM.INFO.{stream}")["state"]):
            return True
        time.sleep(0.05)
    return False
