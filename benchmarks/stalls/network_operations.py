"""Operations: subscriptions, connections, slow readers, WebSocket and monitoring pages."""

from __future__ import annotations

import base64
import contextlib
import os
import socket
import struct
import time
import zlib
from typing import TYPE_CHECKING

from benchmarks.stalls.operation import API, create_consumer, create_stream, operation
from benchmarks.stalls.site import login, publish

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.stalls.site import Peer, Site

SUBSCRIPTIONS = 300_000
READERS = 1_000
CLIENTS = 2_000
MIB = 1 << 20
REACHED_S = 10.0


def subscriptions(count: int = SUBSCRIPTIONS) -> bytes:
    return b"".join(b"SUB t.%d.%d %d\r\n" % (i % 1000, i, i + 10) for i in range(count))


def subscribed(site: Site) -> Peer:
    peer = site.connect()
    peer.send(subscriptions())
    peer.sync()
    return peer


@operation("300,000 subscriptions of one client")
def subscribe(site: Site) -> Iterator[None]:
    data = subscriptions()
    with site.connect() as peer:
        yield
        peer.send(data)
        peer.sync()


@operation("close a client with 300,000 subscriptions")
def close_subscriber(site: Site) -> Iterator[None]:
    with site.connect() as other:
        peer = subscribed(site)
        yield
        peer.sock.close()
        for _ in range(50):
            other.sync()


@operation("300,000 subscriptions to one subject, then 300,000 UNSUBs")
def unsubscribe(site: Site) -> Iterator[None]:
    data = b"".join(b"SUB same %d\r\n" % i for i in range(10, SUBSCRIPTIONS + 10))
    undo = b"".join(b"UNSUB %d\r\n" % i for i in range(10, SUBSCRIPTIONS + 10))
    with site.connect() as peer:
        yield
        peer.send(data)
        peer.sync()
        peer.send(undo)
        peer.sync()


@operation("10 messages to 300,000 subscriptions of one client")
def fan_out(site: Site) -> Iterator[None]:
    with site.connect() as peer, site.connect() as publisher:
        subject = f"{peer.inbox}.x"
        peer.send(
            b"".join(b"SUB %b %d\r\n" % (subject.encode(), i) for i in range(10, SUBSCRIPTIONS))
        )
        peer.sync()
        before = peer.replies
        yield
        publisher.send(publish(subject, b"x") * 10)
        peer.wait_replies(before + 10 * (SUBSCRIPTIONS - 9), REACHED_S)


@operation("close 2,000 clients with 100 subscriptions each")
def close_many(site: Site) -> Iterator[None]:
    socks = []
    for i in range(2_000):
        sock = socket.create_connection(site.address)
        login(sock, "busy")
        sock.sendall(b"".join(b"SUB c.%d.%d %d\r\n" % (i, j, j) for j in range(100)))
        socks.append(sock)
    with site.connect() as other:
        other.sync()
        yield
        for sock in socks:
            sock.close()
        for _ in range(50):
            other.sync()


@operation("monitoring: /subsz with 300,000 subscriptions")
def page_subsz(site: Site) -> Iterator[None]:
    with subscribed(site):
        yield
        site.page("/subsz?subs=1&limit=300000")


@operation("monitoring: /subsz?test= with 300,000 subscriptions")
def page_subsz_test(site: Site) -> Iterator[None]:
    with subscribed(site):
        yield
        site.page("/subsz?subs=1&limit=300000&test=t.1.1")


@operation("monitoring: /connz with 300,000 subscriptions")
def page_connz(site: Site) -> Iterator[None]:
    with subscribed(site):
        yield
        site.page("/connz?subs=detail")


@operation("monitoring: /jsz of 1,000 streams, 2,000 consumers")
def page_jsz(site: Site) -> Iterator[None]:
    with site.connect() as peer:
        for i in range(1_000):
            create_stream(peer, f"S{i}", subjects=[f"s.{i}"], storage="memory")
            for name in ("a", "b"):
                create_consumer(peer, f"S{i}", name, ack_policy="explicit")
        yield
        site.page("/jsz?accounts=1&streams=1&consumers=1&config=1")


@contextlib.contextmanager
def connected(site: Site, count: int) -> Iterator[None]:
    socks = []
    for i in range(count):
        sock = socket.create_connection(site.address)
        login(sock, "busy")
        sock.sendall(b"SUB m.%d 1\r\n" % i)
        socks.append(sock)
    try:
        yield
    finally:
        for sock in socks:
            sock.close()


@operation("monitoring: /varz, /accstatz and /accountz with 2,000 clients")
def page_sums(site: Site) -> Iterator[None]:
    with connected(site, CLIENTS):
        yield
        for path in ("/varz", "/accstatz", "/accountz?acc=BUSY"):
            site.page(path)


@operation("reload with 2,000 clients")
def reload_many(site: Site) -> Iterator[None]:
    with connected(site, CLIENTS):
        before = site.facts()["config_load_time"]
        yield
        site.reload("password: busy }", 'password: busy, permissions: { publish: ">" } }')
        deadline = time.monotonic() + REACHED_S
        while site.facts()["config_load_time"] == before and time.monotonic() < deadline:
            time.sleep(0.01)
        with site.connect() as other:
            for _ in range(50):
                other.sync()


@operation("8 messages of 1 MiB to 1,000 readers that do not read")
def slow_readers(site: Site) -> Iterator[None]:
    socks = []
    for _ in range(READERS):
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(site.address)
        login(sock, "busy")
        sock.sendall(b"SUB big 1\r\nPING\r\n")
        socks.append(sock)
    with site.connect() as peer:
        peer.sync()
        yield
        peer.send(publish("big", b"x" * MIB) * 8)
        peer.sync()
        peer.ask(f"{API}INFO")
    for sock in socks:
        sock.close()


@operation("100,000 repeated CONNECTs")
def connects(site: Site) -> Iterator[None]:
    line = b'CONNECT {"verbose":false,"user":"busy","pass":"busy"}\r\n'
    with site.connect() as peer:
        yield
        try:
            peer.send(line * 100_000)
            peer.sync(REACHED_S)
        except Exception:
            return  # a server may close such a connection


@operation("64 MiB of publishes inside small WebSocket frames")
def inflate(site: Site) -> Iterator[None]:
    sock = upgraded(site)
    burst = publish("ws", b"x" * 1000) * (MIB // 1020)
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    packed = packer.compress(burst) + packer.flush(zlib.Z_SYNC_FLUSH)
    data = frame(packed.removesuffix(b"\x00\x00\xff\xff"), compressed=True)
    yield
    try:
        sock.sendall(data * 64)
        sock.sendall(frame(b"PING\r\n"))
        received = b""
        sock.settimeout(REACHED_S)
        while b"PONG" not in received[-200:]:
            more = sock.recv(65536)
            if not more:
                break
            received += more
    except OSError:
        pass  # a server may reject data that inflates like this
    sock.close()


def frame(payload: bytes, *, compressed: bool = False) -> bytes:
    """Return one masked binary frame of a client."""
    head = bytes([0x82 | (0x40 if compressed else 0)])
    size = len(payload)
    if size < 126:
        head += bytes([0x80 | size])
    elif size < 65536:
        head += bytes([0x80 | 126]) + struct.pack("!H", size)
    else:
        head += bytes([0x80 | 127]) + struct.pack("!Q", size)
    return head + b"\0\0\0\0" + payload  # a mask of zeros changes nothing


def upgraded(site: Site) -> socket.socket:
    """Return a WebSocket connection with compression, logged in."""
    sock = socket.create_connection(site.websocket, timeout=REACHED_S)
    key = base64.b64encode(os.urandom(16)).decode()
    sock.sendall(
        (
            f"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n"
            "Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; "
            "client_no_context_takeover\r\n\r\n"
        ).encode()
    )
    received = b""
    while not received.partition(b"\r\n\r\n")[2]:  # INFO, possibly compressed
        received += sock.recv(65536)
    sock.sendall(frame(b'CONNECT {"verbose":false,"user":"busy","pass":"busy"}\r\nPING\r\n'))
    while b"PONG" not in received:
        received += sock.recv(65536)
    return sock
