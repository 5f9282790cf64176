"""What the plane reads it obeys whole and in order, whatever the size and however it is cut."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from support.peers import TRANSPORTS, Delivery, Embedded, Peer, several
from support.tls import certificates

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.tls import Certificates

pytestmark = pytest.mark.sockets

__all__ = ["certificates"]

KIB = 1024
MAX_PAYLOAD = 1024 * KIB
LINE = len("MSG big 1 65536\r\n\r\n")
#: Around the outbox's chunks, the read size, the size from which a frame has memory of its own,
#: and what a codec is handed at a time; and the limit.
EDGES = (4 * KIB, 64 * KIB, 128 * KIB, 256 * KIB)
SIZES = sorted(
    {runtime + off for runtime in EDGES for off in (-LINE - 24, -LINE, -LINE + 1, -2, -1, 0, 1)}
    | {0, 1, 2, MAX_PAYLOAD - 1, MAX_PAYLOAD}
)


@pytest.fixture(scope="module")
def plain_server() -> Iterator[Embedded]:
    with Embedded() as server:
        yield server


@pytest.fixture(scope="module")
def tls_server(certificates: Certificates) -> Iterator[Embedded]:
    with Embedded(certificates) as server:
        yield server


@pytest.fixture(params=TRANSPORTS)
def pair(
    request: pytest.FixtureRequest, plain_server: Embedded, tls_server: Embedded
) -> Iterator[list[Peer]]:
    """A publisher and a subscriber over the same transport."""
    server = tls_server if request.param == "tls" else plain_server
    with several(2, lambda: server.peer(request.param).connect(headers=True)) as peers:
        yield peers


def body(size: int) -> bytes:
    """Bytes that tell where they were cut or moved."""
    return random.Random(size).randbytes(size)


def publish(subject: str, payload: bytes, header: bytes = b"") -> bytes:
    if header:
        total = len(header) + len(payload)
        return b"HPUB %b %d %d\r\n%b%b\r\n" % (
            subject.encode(),
            len(header),
            total,
            header,
            payload,
        )
    return b"PUB %b %d\r\n%b\r\n" % (subject.encode(), len(payload), payload)


def test_messages_of_every_awkward_size_arrive_whole_and_in_order(pair: list[Peer]) -> None:
    publisher, subscriber = pair
    subscriber.send("SUB big 1\r\n")
    subscriber.fence()
    for size in SIZES:
        publisher.send(publish("big", body(size)))
    publisher.fence()
    got = subscriber.deliveries()
    assert [len(one.payload) for one in got] == list(SIZES)
    assert all(one.payload == body(len(one.payload)) for one in got)


def test_header_blocks_of_every_awkward_size_arrive_whole(pair: list[Peer]) -> None:
    publisher, subscriber = pair
    subscriber.send("SUB big 1\r\n")
    subscriber.fence()
    for size in (1, 4 * KIB, 64 * KIB, 128 * KIB + 1):
        publisher.send(publish("big", body(10), header=body(size)))
    publisher.fence()
    got = subscriber.deliveries()
    assert [(len(one.header), one.payload) for one in got] == [
        (size, body(10)) for size in (1, 4 * KIB, 64 * KIB, 128 * KIB + 1)
    ]
    assert all(one.header == body(len(one.header)) for one in got)


def test_conversation_cut_in_two_anywhere_is_the_same_conversation(
    plain_server: Embedded,
) -> None:
    said = (
        b'CONNECT {"verbose":false,"headers":true}\r\n'
        b"SUB cut.* q 7\r\nSUB > 8\r\nPUB cut.a re.ply 5\r\nhello\r\n"
        b"HPUB cut.b 12 14\r\nNATS/1.0\r\n\r\nhi\r\nUNSUB 7\r\nPUB cut.c 0\r\n\r\n"
    )
    wanted = [
        Delivery("cut.a", "7", "re.ply", b"", b"hello"),
        Delivery("cut.a", "8", "re.ply", b"", b"hello"),
        Delivery("cut.b", "7", "", b"NATS/1.0\r\n\r\n", b"hi"),
        Delivery("cut.b", "8", "", b"NATS/1.0\r\n\r\n", b"hi"),
        Delivery("cut.c", "8", "", b"", b""),
    ]
    for cut in range(1, len(said)):
        with plain_server.peer() as peer:
            peer.send(said[:cut])
            peer.send(said[cut:])
            assert sorted(peer.deliveries()) == wanted


def test_conversation_byte_by_byte_is_the_same_conversation(pair: list[Peer]) -> None:
    publisher, subscriber = pair
    for byte in b"SUB one.> 1\r\n":
        subscriber.send(bytes([byte]))
    subscriber.fence()
    for byte in publish("one.two", b"hello") + publish("one.three", b"x", header=b"h"):
        publisher.send(bytes([byte]))
    publisher.fence()
    assert subscriber.deliveries() == [
        Delivery("one.two", "1", "", b"", b"hello"),
        Delivery("one.three", "1", "", b"h", b"x"),
    ]


def test_large_frame_may_be_followed_by_others_in_any_piece(plain_server: Embedded) -> None:
    dice = random.Random(1)
    said = b"".join(publish("big", body(size)) for size in (70_000, 3, 65_536, 0, 200_000, 40_000))
    with several(2, lambda: plain_server.peer().connect()) as (publisher, subscriber):
        subscriber.send("SUB big 1\r\n")
        subscriber.fence()
        for _ in range(20):
            at = 0
            while at < len(said):
                step = dice.choice((1, 17, 1000, 65_535, 65_536, 131_072, 150_000))
                publisher.send(said[at : at + step])
                at += step
            publisher.fence()
            got = [one.payload for one in subscriber.deliveries()]
            assert got == [body(size) for size in (70_000, 3, 65_536, 0, 200_000, 40_000)]


def test_one_byte_over_payload_limit_is_refused_before_it_arrives(
    plain_server: Embedded,
) -> None:
    with plain_server.peer().connect() as peer:
        peer.send(f"PUB a {MAX_PAYLOAD + 1}\r\n")
        assert peer.read_to_end() == b"-ERR 'Maximum Payload Violation'\r\n"


def test_subscriptions_with_last_message_get_no_more_within_one_burst(
    plain_server: Embedded,
) -> None:
    """Plain, and as members of a queue group, which then is served by those that are left."""
    with several(2, lambda: plain_server.peer().connect()) as (publisher, subscriber):
        for sid in range(1, 41):
            queue = "" if sid <= 20 else "q "
            subscriber.send(f"SUB max {queue}{sid}\r\nUNSUB {sid} {(sid - 1) % 20 + 1}\r\n")
        subscriber.fence()
        publisher.send(b"".join(publish("max", b"%d" % n) for n in range(300)))
        publisher.fence()
        got = subscriber.deliveries()
    for sid in range(1, 21):
        mine = [one.payload for one in got if one.sid == str(sid)]
        assert mine == [b"%d" % n for n in range(sid)]
    grouped = [one for one in got if int(one.sid) > 20]
    assert sorted(int(one.payload) for one in grouped) == list(range(sum(range(1, 21))))


def test_second_connect_leaves_no_subscription_behind(plain_server: Embedded) -> None:
    with several(2, lambda: plain_server.peer().connect()) as (publisher, subscriber):
        before = len(plain_server.service.accounts["$G"].interest)
        for _ in range(3):
            subscriber.send("".join(f"SUB again.{n} {n}\r\n" for n in range(100)))
            subscriber.connect()
            publisher.send(b"".join(publish(f"again.{n}", b"x") for n in range(100)))
            publisher.fence()
            assert subscriber.deliveries() == []
        assert len(plain_server.service.accounts["$G"].interest) == before
