"""Work that is served in slices: nothing is lost or reordered, and memory stays bounded."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

import pytest

from penstock.server.config.options import Authorization, WebsocketOptions
from penstock.server.net.codecs.websocket_frames import BINARY
from support.peers import Embedded, several, until
from support.transport_codecs import frame
from support.victims import MIB, Victim

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

WEBSOCKET = WebsocketOptions(host="127.0.0.1", port=-1, no_tls=True, compression=True)
CONNECTS_MAX = 64
LARGE = 1_000_000


def packed(data: bytes) -> bytes:
    """One compressed WebSocket frame."""
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    deflated = engine.compress(data) + engine.flush(zlib.Z_SYNC_FLUSH)
    return frame(BINARY, deflated[:-4], rsv1=True)


def numbered(count: int) -> bytes:
    return b"".join(b"PUB order 6\r\n%06d\r\n" % n for n in range(count))


def test_burst_to_very_many_subscriptions_arrives_whole_and_in_order(unguarded: Victim) -> None:
    """Far more work than a turn may take: the publisher's bytes are obeyed over many turns."""
    with unguarded.client() as reader, unguarded.client() as publisher:
        reader.send("".join(f"SUB order {n}\r\n" for n in range(300)))
        reader.fence()
        publisher.send(numbered(1000))
        assert publisher.fence() == []
        got = reader.deliveries()
    assert len(got) == 300 * 1000
    assert [int(one.payload) for one in got if one.sid == "7"] == list(range(1000))


def test_bytes_of_publisher_that_closes_at_once_are_all_processed(unguarded: Victim) -> None:
    with unguarded.client() as reader:
        reader.send("".join(f"SUB order {n}\r\n" for n in range(300)))
        reader.fence()
        with unguarded.client() as publisher:
            publisher.send(numbered(1000))
            publisher.leave()
        assert len(reader.deliveries()) == 300 * 1000


def test_small_frame_that_inflates_is_processed_in_order() -> None:
    with Embedded(websocket=WEBSOCKET) as server, server.peer().connect() as reader:
        with server.peer("ws-deflate").connect() as publisher:
            reader.send("SUB order 1\r\n")
            reader.fence()
            publisher.socket.sendall(packed(numbered(40_000)))
            assert publisher.fence() == []
        got = [int(one.payload) for one in reader.deliveries()]
    assert got == list(range(40_000))


def test_many_one_byte_frames_are_processed_in_order() -> None:
    with Embedded(websocket=WEBSOCKET) as server, server.peer().connect() as reader:
        with server.peer("ws-deflate").connect() as publisher:
            reader.send("SUB order 1\r\n")
            reader.fence()
            said = numbered(1000)
            frames = (frame(BINARY, said[at : at + 1]) for at in range(len(said)))
            publisher.socket.sendall(b"".join(frames))
            assert publisher.fence() == []
        got = [int(one.payload) for one in reader.deliveries()]
    assert got == list(range(1000))


@pytest.mark.parametrize("size", [8 * 1024, 4 * MIB])
def test_before_login_frame_inflates_to_at_most_one_control_line(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    guarded = Authorization(user="amy", password="secret")
    with Embedded(websocket=WEBSOCKET, authorization=guarded) as server:
        with server.peer("ws-deflate") as peer:
            peer.socket.sendall(packed(b"CONNECT {" + b" " * size))
            peer.read_to_end()
        server.wait_for_connections(0)
        assert "compressed message too big" in caplog.text


def test_after_login_frame_inflates_to_at_most_max_payload_and_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with Embedded(websocket=WEBSOCKET, max_payload=64 * 1024) as server:
        with server.peer("ws-deflate").connect() as peer:
            body = b"x" * 64 * 1024
            peer.socket.sendall(packed(b"SUB big 1\r\nPUB big 65536\r\n" + body + b"\r\n"))
            assert [len(one.payload) for one in peer.deliveries()] == [65536]
            peer.socket.sendall(packed(b"PUB a 0\r\n\r\n" * 100_000))
            peer.read_to_end()
        server.wait_for_connections(0)
        assert "compressed message too big" in caplog.text


def test_client_that_repeats_connect_is_closed(unguarded: Victim) -> None:
    line = b'CONNECT {"verbose":false}\r\n'
    with unguarded.peer() as peer:
        peer.send(line * CONNECTS_MAX)
        peer.fence()
        peer.try_send(line + b"PING\r\n")
        assert b"maximum CONNECT operations exceeded" in peer.read_to_end()


def test_second_connect_drops_many_subscriptions_before_the_next_command(
    unguarded: Victim,
) -> None:
    with unguarded.client() as peer:
        peer.send("".join(f"SUB again.{n} {n}\r\n" for n in range(50_000)))
        peer.send('CONNECT {"verbose":false}\r\nSUB again.7 new\r\nPUB again.7 0\r\n\r\n')
        assert [one.sid for one in peer.deliveries()] == ["new"]


def test_closed_client_with_many_subscriptions_leaves_queue_groups_at_once(
    unguarded: Victim,
) -> None:
    with unguarded.client() as other, unguarded.client() as publisher:
        with unguarded.client() as greedy:
            greedy.send("".join(f"SUB work q {n}\r\n" for n in range(100_000)))
            greedy.fence()
            other.send("SUB work q 1\r\n")
            other.fence()
            greedy.leave()
        publisher.send(b"PUB work 0\r\n\r\n" * 20)
        publisher.fence()
        assert len(other.deliveries()) == 20


def test_large_payload_for_many_slow_readers_is_in_memory_once(
    attack: Callable[..., Victim],
) -> None:
    victim = attack()
    readers = 60
    with victim.client() as publisher, several(readers, victim.client) as stuck:
        publisher.connect(headers=True)
        for number, peer in enumerate(stuck):
            peer.connect(headers=bool(number % 2))  # both kinds share the same body
            peer.send("SUB big 1\r\n")
            peer.fence()
        before = victim.resident()
        header = b"NATS/1.0\r\n\r\n"
        for _ in range(8):
            size = len(header) + LARGE
            publisher.send(
                b"HPUB big %d %d\r\n%b%b\r\n" % (len(header), size, header, b"x" * LARGE)
            )
        publisher.fence()
        assert victim.peak() - before < 60 * MIB  # not 480 MB
        for peer in stuck:
            assert [len(one.payload) for one in peer.deliveries()] == [LARGE] * 8


def test_state_of_many_clients_that_close_at_once_is_freed() -> None:
    with Embedded() as server, server.peer().connect() as other:
        peers = [server.peer().connect() for _ in range(200)]
        for peer in peers:
            peer.send("".join(f"SUB c.{n} {n}\r\n" for n in range(100)))
            peer.fence()
        for peer in peers:
            peer.close()
        server.wait_for_connections(1)
        interest = server.service.accounts["$G"].interest
        until(lambda: not interest.has_interest("c.7"), "no subscription is left")
        assert other.fence() == []


def test_replies_larger_than_one_slice_of_sending_arrive(
    attack: Callable[..., Victim], tmp_path: Path
) -> None:
    """A reader that keeps up takes several slices in one flush, and the server goes on."""
    victim = attack(f'max_payload: 8MB\njetstream {{ store_dir: "{tmp_path}" }}\n')
    with victim.client() as peer:
        peer.send("SUB reply 1\r\n")
        config = b'{"name":"S","subjects":["s"],"storage":"memory"}'
        peer.send(b"PUB $JS.API.STREAM.CREATE.S reply %d\r\n%b\r\n" % (len(config), config))
        until(lambda: len(peer.deliveries()) == 1, "the stream")
        peer.send(b"PUB s %d\r\n%b\r\n" % (5 * MIB, b"x" * (5 * MIB)))
        peer.fence()
        peer.send(b'PUB $JS.API.STREAM.MSG.GET.S reply 9\r\n{"seq":1}\r\n' * 6)
        sizes: list[int] = []
        while len(sizes) < 6:
            sizes += [len(one.payload) for one in peer.deliveries()]
        assert min(sizes) > 6 * MIB
