"""The counting scanner against a naive model, in every chunking."""

from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from penstock.bench.load.message_scan import MessageScanner

STAMP_DIGITS = 8
CYCLE = 5


@dataclass(frozen=True)
class Seen:
    messages: int
    pings: int
    pongs: int
    misordered: int


def naive(stream: bytes, cycle: int = 0) -> Seen:
    """Split the whole stream at once; the stream ends between two lines."""
    messages = pings = pongs = misordered = expected = 0
    while stream:
        line, _, stream = stream.partition(b"\r\n")
        words = line.split()
        if words[0] in (b"MSG", b"HMSG"):
            total = int(words[-1])
            header = int(words[-2]) if words[0] == b"HMSG" else 0
            payload = stream[header:total]
            stream = stream[total + 2 :]
            messages += 1
            stamp = int(payload[:STAMP_DIGITS]) if cycle else 0
            misordered += bool(cycle) and stamp != expected
            expected = (stamp + 1) % cycle if cycle else 0
        pings += words[0] == b"PING"
        pongs += words[0] == b"PONG"
    return Seen(messages, pings, pongs, misordered)


def seen(scanner: MessageScanner) -> Seen:
    return Seen(scanner.messages, scanner.pings, scanner.pongs, scanner.misordered)


def message(payload: bytes, header: bytes | None = None) -> bytes:
    if header is None:
        return b"MSG a.b 1 %d\r\n%b\r\n" % (len(payload), payload)
    total = len(header) + len(payload)
    return b"HMSG a.b 1 in.box %d %d\r\n%b%b\r\n" % (len(header), total, header, payload)


def stamped(number: int, tail: bytes, header: bytes | None) -> bytes:
    return message(b"%08d" % number + tail, header)


tricky = st.sampled_from([b"", b"x", b"\r\n", b"MSG a 1 3\r\n", b"PONG\r\n", b"\x00\xff"])
payloads = st.one_of(tricky, st.binary(max_size=60))
headers = st.one_of(st.none(), st.just(b""), st.just(b"NATS/1.0\r\nA: b\r\n\r\n"))
controls = st.sampled_from(
    [b"PING\r\n", b"PONG\r\n", b"+OK\r\n", b'INFO {"a":1} \r\n', b"MSG a 1 in.box  0\r\n\r\n"]
)
streams = st.lists(st.one_of(controls, st.builds(message, payloads, headers))).map(b"".join)
stamped_streams = st.lists(
    st.one_of(
        st.sampled_from([b"PING\r\n"]),
        st.builds(stamped, st.integers(0, CYCLE - 1), payloads, headers),
    )
).map(b"".join)
noise = st.lists(
    st.sampled_from(
        [
            b"MSG ",
            b"HMSG ",
            b"a 1 ",
            b"3",
            b"99999999999",
            b"\r\n",
            b"\n",
            b"-ERR 'x'",
            b"PING",
            b" ",
        ]
    )
).map(b"".join)


def chunked(data: st.DataObject, stream: bytes) -> list[bytes]:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    edges = [0, *cuts, len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


@given(st.data(), streams)
def test_any_chunking_counts_what_model_counts(data: st.DataObject, stream: bytes) -> None:
    scanner = MessageScanner()
    for chunk in chunked(data, stream):
        assert scanner.feed(chunk)
    assert seen(scanner) == naive(stream)
    assert scanner.between_lines


@given(st.data(), stamped_streams)
def test_any_chunking_finds_misordered_messages(data: st.DataObject, stream: bytes) -> None:
    scanner = MessageScanner()
    scanner.expect_stamps(CYCLE)
    for chunk in chunked(data, stream):
        assert scanner.feed(chunk)
    assert seen(scanner) == naive(stream, CYCLE)


@given(st.data(), st.one_of(noise, st.binary()))
def test_any_chunking_of_garbage_gives_the_same_verdict(data: st.DataObject, stream: bytes) -> None:
    whole, parts = MessageScanner(), MessageScanner()
    verdict = whole.feed(stream)
    verdicts = [parts.feed(chunk) for chunk in chunked(data, stream)]
    assert verdicts[-1] == verdict
    assert (parts.error, seen(parts)) == (whole.error, seen(whole))


def test_message_counts_only_once_its_last_byte_was_seen() -> None:
    scanner = MessageScanner()
    stream = message(b"hello")
    for place in range(len(stream)):
        assert scanner.messages == 0, place
        scanner.feed(stream[place : place + 1])
    assert scanner.messages == 1


def test_error_line_is_reported_with_its_text_and_stops_scan() -> None:
    scanner = MessageScanner()
    assert not scanner.feed(message(b"1") + b"-ERR 'Authorization Violation'\r\n" + message(b"2"))
    assert "Authorization Violation" in scanner.error
    assert scanner.messages == 1
    assert not scanner.feed(message(b"3"))


def test_payload_of_wrong_size_breaks_stream() -> None:
    scanner = MessageScanner()
    assert not scanner.feed(b"MSG a 1 3\r\ntoolong\r\n")
    assert "payload" in scanner.error


def test_endless_line_is_refused() -> None:
    scanner = MessageScanner()
    verdicts = [scanner.feed(b"I" * 8192) for _ in range(5)]
    assert verdicts == [True, True, True, True, False]
    assert scanner.error == "line too long"


def test_lost_message_is_one_disorder_not_many() -> None:
    scanner = MessageScanner()
    scanner.expect_stamps(CYCLE)
    for number in (0, 1, 3, 4, 0, 1):
        scanner.feed(stamped(number, b"", None))
    assert scanner.misordered == 1
