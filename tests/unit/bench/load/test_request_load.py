"""Publishes with acks and gets: what counts as an answer, and that nothing else does."""

import socket
from array import array
from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.bench_error import BenchError
from penstock.bench.load.load_frames import Asks, encode_asks
from penstock.bench.load.raw_client import deadline_after
from penstock.bench.load.request_load import get_values, publish_acked

INBOX = "_INBOX.q"


def message(token: int, payload: bytes) -> bytes:
    return b"MSG %b.%010d 1 %d\r\n%b\r\n" % (INBOX.encode(), token, len(payload), payload)


def ack(token: int, seq: int, more: bytes = b"") -> bytes:
    return message(token, b'{"stream":"S", "seq":%d%b}' % (seq, more))


def value(
    token: int, payload: bytes, header: bytes = b"NATS/1.0\r\nNats-Sequence: 1\r\n\r\n"
) -> bytes:
    sizes = b"%d %d" % (len(header), len(header) + len(payload))
    return b"HMSG %b.%010d 1 %b\r\n%b%b\r\n" % (INBOX.encode(), token, sizes, header, payload)


class Line:
    """A connection whose other end sends prepared packets, each read in one piece."""

    def __init__(self, packets: Sequence[bytes]) -> None:
        self.near, self.far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for packet in packets:
            self.far.send(packet)
        self.deadline_ns = deadline_after(10)

    def heard(self) -> bytes:
        """All that was sent over the line; it is closed afterwards."""
        self.near.close()
        parts = []
        while part := self.far.recv(1 << 20):
            parts.append(part)
        return b"".join(parts)

    def close(self) -> None:
        self.near.close()
        self.far.close()

    def publish(self, asks: Asks, count: int, window: int = 10, first_seq: int = 1) -> "array[int]":
        samples = array("q", bytes(8 * count))
        publish_acked(
            self.near.fileno(),
            asks.data,
            asks.frame_bytes,
            asks.token_at,
            window,
            first_seq,
            samples,
            self.deadline_ns,
        )
        return samples

    def get(self, asks: Asks, count: int, value_bytes: int) -> "array[int]":
        samples = array("q", bytes(8 * count))
        get_values(
            self.near.fileno(),
            asks.data,
            asks.frame_bytes,
            asks.token_at,
            10,
            value_bytes,
            samples,
            self.deadline_ns,
        )
        return samples


OpenLine = Callable[..., Line]


@pytest.fixture
def line() -> Iterator[OpenLine]:
    opened: list[Line] = []

    def start(*packets: bytes) -> Line:
        opened.append(Line(packets))
        return opened[-1]

    yield start
    for one in opened:
        one.close()


@pytest.fixture
def asks() -> Asks:
    return encode_asks(["s"], INBOX, 16)


@given(st.data())
def test_any_chunking_of_acks_is_read_alike(data: st.DataObject) -> None:
    said = b"PING\r\n" + b"".join(ack(token, 8 + token) for token in range(5)) + b"PING\r\n"
    cuts = data.draw(st.lists(st.integers(1, len(said) - 1), unique=True).map(sorted))
    ends = [*cuts, len(said)]
    packets = [said[start:end] for start, end in zip([0, *cuts], ends, strict=True)]
    one = Line(packets)
    try:
        samples = one.publish(encode_asks(["s"], INBOX, 8), 5, first_seq=8)
        assert all(sample > 0 for sample in samples)
    finally:
        one.close()


def test_every_publish_has_its_own_reply_and_its_place_as_payload(
    line: OpenLine, asks: Asks
) -> None:
    one = line(*(ack(token, token + 1) for token in range(3)))
    one.publish(asks, 3)
    expected = b"".join(
        b"PUB s %b.%010d 16\r\n%08dxxxxxxxx\r\n" % (INBOX.encode(), token, token)
        for token in range(3)
    )
    assert one.heard() == expected


def test_no_more_are_outstanding_than_window_allows(line: OpenLine, asks: Asks) -> None:
    one = line(ack(0, 1), ack(1, 2))
    one.deadline_ns = deadline_after(0.5)
    with pytest.raises(BenchError, match=r"in time \(2 of 50 answered\)"):
        one.publish(asks, 50, window=3)
    assert one.heard().count(b"PUB ") == 5


def test_pings_are_answered_between_frames(line: OpenLine, asks: Asks) -> None:
    one = line(b"PING\r\n", b"+OK\r\nINFO {}\r\n" + ack(0, 1), ack(1, 2))
    one.publish(asks, 2, window=1)
    frame = asks.frame_bytes
    heard = one.heard()
    assert heard[frame : frame + 6] == b"PONG\r\n"
    assert heard.count(b"PUB ") == 2


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (ack(0, 2), "wrong sequence"),
        (message(0, b'{"error":{"code":503},"stream":"S","seq":1}'), "not an ack"),
        (message(0, b"{}"), "not an ack"),
        (message(0, b""), "not an ack"),
        (message(0, b'{"stream":"S","seq":}'), "wrong sequence"),
        (ack(0, 1, b',"duplicate":true'), "duplicate"),
        (ack(0, 1) + ack(0, 1), "a second answer"),
        (ack(7, 1), "no request"),
        (b"MSG short 1 2\r\n{}\r\n", "no request"),
        (value(0, b"", b"NATS/1.0 503\r\n\r\n"), "no responders"),
        (b"-ERR 'Permissions Violation'\r\n", "Permissions Violation"),
        (b"MSG subject\r\n", "without a size"),
        (b"HMSG a 1 9 4\r\n", "without a size"),
        (b"MSG a 1 4x\r\n", "without a size"),
        (b"\n", "server said"),
    ],
)
def test_anything_but_expected_ack_fails_run(
    line: OpenLine, asks: Asks, answer: bytes, why: str
) -> None:
    with pytest.raises(BenchError, match=why):
        line(answer).publish(asks, 2)


def test_closed_connection_reports_how_far_it_came(line: OpenLine, asks: Asks) -> None:
    one = line(ack(0, 1))
    one.far.shutdown(socket.SHUT_WR)
    with pytest.raises(BenchError, match=r"closed by the server \(1 of 5 answered\)"):
        one.publish(asks, 5)


def test_frame_too_large_is_refused_before_anything_is_sent(line: OpenLine) -> None:
    with pytest.raises(BenchError, match="too large"):
        line().publish(encode_asks(["s"], INBOX, 300_000), 1)


def test_values_may_come_in_any_order_but_must_be_those_of_their_keys(line: OpenLine) -> None:
    gets = encode_asks(["get.0", "get.1"], INBOX, 0)
    assert gets.count == 2
    one = line(*(value(token, b"%08dab" % (token % 2)) for token in (1, 0, 2)))
    assert len(one.get(gets, 3, 10)) == 3


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (value(0, b"00000001ab"), "another key"),
        (value(0, b"00000000abc"), "wrong size"),
        (value(0, b"", b"NATS/1.0 404 Message Not Found\r\n\r\n"), "no value: NATS/1.0 404"),
    ],
)
def test_anything_but_expected_value_fails_run(line: OpenLine, answer: bytes, why: str) -> None:
    with pytest.raises(BenchError, match=why):
        line(answer).get(encode_asks(["get.0", "get.1"], INBOX, 0), 2, 10)
