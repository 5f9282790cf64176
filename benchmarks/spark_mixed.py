"""A realistic stream for `python -m benchmarks.spark --mixed`.

Payloads of 20 B to 8 KiB, mostly small (each doubling is equally likely), two headers on every
other message, 50,000 subjects, and gaps: every `GAP_EVERY`th message is deleted afterwards. The
messages are the same for every server, from a fixed seed.
"""

from __future__ import annotations

import json
import math
import socket
from random import Random
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nats.js import JetStreamContext

SIZE_MIN: Final = 20
SIZE_MAX: Final = 8 << 10
SUBJECTS: Final = 50_000
GAP_EVERY: Final = 500
CHUNK: Final = 500


def messages(stream: str, count: int) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield subject, headers (empty for none) and payload of each message."""
    chance = Random(count)
    doublings = math.log2(SIZE_MAX / SIZE_MIN)
    for number in range(count):
        size = int(SIZE_MIN * 2 ** (chance.random() * doublings))
        headers = b""
        if number % 2:
            trace = chance.randbytes(8).hex().encode()
            headers = b"NATS/1.0\r\nTrace-Id: %b\r\nContent-Type: app/json\r\n\r\n" % trace
        subject = b"%b.%d" % (stream.encode(), chance.randrange(SUBJECTS))
        yield subject, headers, chance.randbytes(size)


def publish_mixed(host: str, port: int, stream: str, count: int) -> None:
    """Send the messages in chunks, and wait until the last of each is stored."""
    with socket.create_connection((host, port)) as wire:
        wire.sendall(b'CONNECT {"verbose":false,"headers":true}\r\nSUB acks 1\r\n')
        lines: list[bytes] = []
        for number, (subject, headers, payload) in enumerate(messages(stream, count), 1):
            ends = number % CHUNK == 0 or number == count
            reply = b"acks " if ends else b""
            if headers:
                sizes = (subject, reply, len(headers), len(headers) + len(payload))
                lines.append(b"HPUB %b %b%d %d\r\n" % sizes + headers + payload + b"\r\n")
            else:
                lines.append(b"PUB %b %b%d\r\n" % (subject, reply, len(payload)))
                lines.append(payload + b"\r\n")
            if ends:
                wire.sendall(b"".join(lines))
                lines.clear()
                heard = b""
                while b'"seq":' not in heard:
                    heard = heard[-8:] + wire.recv(65536)


async def make_gaps(jetstream: JetStreamContext, stream: str, count: int) -> None:
    """Delete every `GAP_EVERY`th message."""
    for seq in range(GAP_EVERY, count + 1, GAP_EVERY):
        asked = json.dumps({"seq": seq, "no_erase": True}).encode()
        await jetstream._nc.request(f"$JS.API.STREAM.MSG.DELETE.{stream}", asked, timeout=30)
