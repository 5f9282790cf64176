"""Reading a stream: whole, in sequence, once each; flow control, acks and further pulls."""

import socket
from collections.abc import Callable, Iterator

import pytest

from penstock.bench.bench_error import BenchError
from penstock.bench.load.raw_client import deadline_after
from penstock.bench.load.stream_read_load import read_stream

CYCLE = 2
PONG = b"PONG\r\n"


def reply(seq: int, pending: int, delivered: int = 1, consumer_seq: int | None = None) -> bytes:
    place = seq if consumer_seq is None else consumer_seq
    return b"$JS.ACK.S.c.%d.%d.%d.1763263000123456789.%d" % (delivered, seq, place, pending)


def stored(to: bytes, stamp: int, header: bytes = b"") -> bytes:
    payload = b"%08dxy" % stamp
    if header:
        sizes = b"%d %d" % (len(header), len(header) + len(payload))
        return b"HMSG s 1 %b %b\r\n%b%b\r\n" % (to, sizes, header, payload)
    return b"MSG s 1 %b %d\r\n%b\r\n" % (to, len(payload), payload)


def whole(count: int) -> list[bytes]:
    return [stored(reply(seq, count - seq), (seq - 1) % CYCLE) for seq in range(1, count + 1)]


def status(header: bytes, to: bytes = b"") -> bytes:
    blank = b" " if to else b""
    return b"HMSG s 1%b%b %d %d\r\n%b\r\n" % (
        blank,
        b" " + to if to else b"",
        len(header),
        len(header),
        header,
    )


Reader = Callable[..., bytes]


@pytest.fixture
def read() -> Iterator[Reader]:
    """Reads a stream of `total` messages from these packets; returns what was sent meanwhile."""
    lines: list[socket.socket] = []

    def run(
        packets: list[bytes],
        total: int,
        *,
        request: bytes = b"",
        batch: int = 0,
        acks: bool = False,
        seconds: float = 10.0,
    ) -> bytes:
        near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        lines.extend((near, far))
        for packet in packets:
            far.send(packet)
        deadline_ns = deadline_after(seconds)
        start_ns, end_ns = read_stream(
            near.fileno(),
            b"OPEN|",
            total,
            CYCLE,
            deadline_ns,
            request=request,
            batch=batch,
            acks=acks,
        )
        assert start_ns < end_ns
        near.close()
        parts = []
        while part := far.recv(1 << 20):
            parts.append(part)
        return b"".join(parts)

    yield run
    for one in lines:
        one.close()


def test_whole_stream_is_read_and_nothing_is_sent_but_opening_and_ping(read: Reader) -> None:
    assert read([*whole(5), PONG], 5) == b"OPEN|PING\r\n"


def test_messages_in_pieces_are_read_alike(read: Reader) -> None:
    said = b"".join([*whole(3), PONG])
    assert read([said[at : at + 1] for at in range(len(said))], 3) == b"OPEN|PING\r\n"


def test_headers_and_reply_subjects_with_domain_are_understood(read: Reader) -> None:
    plain = stored(reply(1, 1), 0, b"NATS/1.0\r\nA: b\r\n\r\n")
    domain = b"$JS.ACK.hub.hash.S.c.1.2.2.1763263000123456789.0"
    assert read([plain, stored(domain, 1), PONG], 2)
    assert read([plain, stored(domain + b".token", 1), PONG], 2)


def test_answer_to_opening_request_is_no_message(read: Reader) -> None:
    created = b'MSG in 1 11\r\n{"type":""}\r\n'
    assert read([created, *whole(2), PONG], 2)


def test_every_message_is_acked_on_its_own_subject(read: Reader) -> None:
    sent = read([*whole(2), PONG], 2, acks=True)
    acks = b"".join(b"PUB %b 4\r\n+ACK\r\n" % reply(seq, 2 - seq) for seq in (1, 2))
    assert sent == b"OPEN|" + acks + b"PING\r\n"


def test_new_request_follows_every_batch(read: Reader) -> None:
    assert read([*whole(5), PONG], 5, request=b"MORE|", batch=2) == b"OPEN|MORE|MORE|PING\r\n"


def test_flow_control_and_stalled_heartbeats_are_answered_and_pings_too(read: Reader) -> None:
    first, second = whole(2)
    flow = status(b"NATS/1.0 100 FlowControl Request\r\n\r\n", b"$JS.FC.S.c.1")
    stalled = status(
        b"NATS/1.0 100 Idle Heartbeat\r\nNats-Consumer-Stalled: $JS.FC.S.c.2\r\nA: b\r\n\r\n"
    )
    beat = status(b"NATS/1.0 100 Idle Heartbeat\r\nNats-Last-Consumer: 1\r\n\r\n")
    sent = read([first, flow, stalled, beat, b"PING\r\n", second, PONG], 2)
    answers = b"PUB $JS.FC.S.c.1 0\r\n\r\nPUB $JS.FC.S.c.2 0\r\n\r\nPONG\r\n"
    assert sent == b"OPEN|" + answers + b"PING\r\n"


@pytest.mark.parametrize(
    ("packets", "why"),
    [
        ([stored(reply(2, 0), 0)], "out of sequence"),
        ([stored(reply(1, 1, consumer_seq=2), 0)], "out of sequence"),
        ([stored(reply(1, 1, delivered=2), 0)], "delivered again"),
        ([stored(reply(1, 1), 1)], "payload of another message"),
        ([b"MSG s 1 " + reply(1, 1) + b" 1\r\nx\r\n"], "without its stamp"),
        ([stored(b"$JS.ACK.S.c.1", 0)], "without position"),
        ([whole(2)[0], stored(reply(2, 3), 1)], "has others behind it"),
        ([*whole(2), stored(reply(3, 0), 0)], "one more than was stored"),
        ([status(b"NATS/1.0 409 Consumer Deleted\r\n\r\n")], "409 Consumer Deleted"),
        ([b'MSG in 1 20\r\n{"error":{"code":5}}\r\n'], "refused"),
        ([b"-ERR 'Slow Consumer'\r\n"], "Slow Consumer"),
    ],
)
def test_anything_else_fails_run(read: Reader, packets: list[bytes], why: str) -> None:
    with pytest.raises(BenchError, match=why):
        read(packets, 2)


def test_read_that_cannot_finish_ends_at_its_deadline(read: Reader) -> None:
    with pytest.raises(BenchError, match=r"in time \(1 of 2 read\)"):
        read(whole(2)[:1], 2, seconds=0.5)
