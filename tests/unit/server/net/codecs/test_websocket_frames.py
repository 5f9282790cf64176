"""Frames: any chunking gives the same bytes, violations get the reference's words, memory is bound.

The frames come from `websockets` or are made by hand where a good library refuses to.
"""

from __future__ import annotations

import os
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.server.net.codecs.contract import RECEIVE_BYTES_MAX
from penstock.server.net.codecs.websocket_frames import (
    BINARY,
    BROWSER_FRAME_BYTES_MAX,
    CLOSE,
    COMPRESS_BYTES_MIN,
    CONTINUATION,
    MESSAGE_BYTES_MAX,
    PING,
    PONG,
    TEXT,
    CloseStatus,
    FrameDecoder,
    FrameInflater,
    FrameViolation,
    PeerClosed,
    close_payload,
    encode_frame,
    encode_message,
)
from support.transport_codecs import SPLITS, frame, split

DATA = b"PUB a 5\r\nhello\r\n"


def deflate(data: bytes) -> bytes:
    engine = zlib.compressobj(9, zlib.DEFLATED, -15)
    return (engine.compress(data) + engine.flush(zlib.Z_SYNC_FLUSH))[:-4]


def packed(data: bytes) -> bytes:
    return frame(BINARY, deflate(data), rsv1=True)


class Received:
    """A decoder with what it gave and what it wants answered."""

    def __init__(self, *, masked: bool = True, message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.replies: list[bytes] = []
        self.portions: list[int] = []
        self.data = bytearray()
        self.decoder = FrameDecoder(
            self.replies.append,
            masked=masked,
            compressed=True,
            message_bytes_max=message_bytes_max,
        )

    def feed(self, data: bytes, how: str = "whole") -> Received:
        for piece in split(data, how):
            self._once(piece)
            while self.decoder.pending:
                self._once(b"")
        return self

    def _once(self, piece: bytes) -> None:
        out: list[bytes] = []
        try:
            self.decoder.feed(piece, out)
        finally:
            self.portions.append(sum(map(len, out)))
            self.data += b"".join(out)


def violation(data: bytes, how: str = "bytes") -> FrameViolation:
    with pytest.raises(FrameViolation) as caught:
        Received().feed(data, how)
    return caught.value


STREAMS = {
    "one": frame(BINARY, DATA),
    "text": frame(TEXT, DATA),
    "text that is no utf8": frame(TEXT, b"\xff" + DATA),
    "many": b"".join(frame(BINARY, DATA) for _ in range(300)),
    "empty": frame(BINARY, b"") + frame(BINARY, DATA),
    "medium": frame(BINARY, DATA * 100),
    "large": frame(BINARY, DATA * 10_000),
    "fragments": frame(BINARY, DATA, fin=False)
    + frame(CONTINUATION, b"", fin=False)
    + frame(PING, b"between")
    + frame(CONTINUATION, DATA),
    "compressed": packed(DATA * 50),
    "compressed to nothing": frame(BINARY, b"\0", rsv1=True) + frame(BINARY, DATA),
    "compressed fragments": frame(BINARY, deflate(DATA * 90)[:20], fin=False, rsv1=True)
    + frame(PING, b"")
    + frame(CONTINUATION, deflate(DATA * 90)[20:], fin=False)
    + frame(CONTINUATION, b""),
    "mixed": packed(DATA * 9) + frame(BINARY, DATA) + packed(DATA) + frame(PONG, b"x"),
    "last block, then junk": frame(BINARY, zlib.compress(DATA, wbits=-15) + b"junk", rsv1=True)
    + frame(BINARY, DATA),
    "length in more bytes than needed": b"\x82\xfe\x00\x05\0\0\0\0hello"
    + b"\x82\xff\0\0\0\0\0\0\x00\x05\0\0\0\0world",
}


def expected(name: str) -> bytes:
    return bytes(Received().feed(STREAMS[name]).data)


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize("name", STREAMS)
def test_any_chunking_gives_the_same_bytes(name: str, how: str) -> None:
    assert Received().feed(STREAMS[name], how).data == expected(name)


def test_bytes_are_those_that_were_framed() -> None:
    assert expected("one") == expected("text") == expected("empty") == DATA
    assert expected("text that is no utf8") == b"\xff" + DATA
    assert expected("many") == DATA * 300
    assert expected("large") == DATA * 10_000
    assert expected("fragments") == DATA * 2
    assert expected("compressed") == DATA * 50
    assert expected("compressed to nothing") == DATA
    assert expected("compressed fragments") == DATA * 90
    assert expected("mixed") == DATA * 11
    assert expected("last block, then junk") == DATA * 2
    assert expected("length in more bytes than needed") == b"helloworld"


@given(
    payloads=st.lists(st.binary(max_size=300), max_size=12),
    kinds=st.lists(st.sampled_from(["plain", "packed", "split", "ping"]), min_size=12, max_size=12),
    seed=st.integers(0, 1000),
)
def test_any_mixture_of_frames_carries_its_payloads(
    payloads: list[bytes], kinds: list[str], seed: int
) -> None:
    makers = {
        "plain": lambda p: frame(BINARY, p),
        "packed": packed,
        "split": lambda p: frame(TEXT, p[:9], fin=False) + frame(CONTINUATION, p[9:]),
        "ping": lambda p: frame(PING, p[:125]),
    }
    stream = b"".join(makers[kind](p) for kind, p in zip(kinds, payloads, strict=False))
    received = Received()
    for piece in split(stream, "random", seed):
        received.feed(piece)
    pairs = list(zip(kinds, payloads, strict=False))
    assert received.data == b"".join(p for kind, p in pairs if kind != "ping")
    assert len(received.replies) == sum(kind == "ping" for kind, _ in pairs)


@given(st.binary(max_size=400), st.integers(0, 1000))
def test_garbage_raises_nothing_but_what_is_declared(garbage: bytes, seed: int) -> None:
    received = Received()
    try:
        for piece in split(garbage, "random", seed):
            received.feed(piece)
    except (FrameViolation, PeerClosed):
        pass


def test_pings_are_answered_with_their_payload() -> None:
    received = Received().feed(
        frame(PING, b"hello") + frame(PONG, b"x") + frame(PING, b""), "bytes"
    )
    assert received.replies == [b"\x8a\x05hello", b"\x8a\x00"]


def test_unmasked_frames_pass_only_where_masking_was_waived() -> None:
    raw = b"\x82\x05hello\x89\x01x"
    assert violation(raw).text == "mask bit missing"
    received = Received(masked=False).feed(raw, "bytes")
    assert received.data == b"hello"
    assert received.replies == [b"\x8a\x01x"]


def raw_frame(first: int, payload: bytes = b"") -> bytes:
    return bytes([first, 0x80 | len(payload), 0, 0, 0, 0]) + payload


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (raw_frame(0xA2), "RSV2 and RSV3 must be clear"),
        (raw_frame(0x92), "RSV2 and RSV3 must be clear"),
        (raw_frame(0x83), "unknown opcode 3"),
        (raw_frame(0x8B), "unknown opcode 11"),
        (raw_frame(0x80), "invalid continuation frame"),
        (raw_frame(0x02) + raw_frame(0xC0), "invalid continuation frame"),
        (
            raw_frame(0x02, b"x") + raw_frame(0x82),
            "new message started before final frame for previous message was received",
        ),
        (raw_frame(0xC9), "control frame must not be compressed"),
        (raw_frame(0x09), "control frame does not have final bit set"),
        (
            b"\x89\xfe\x00\x7e",
            "control frame length bigger than maximum allowed of 125 bytes",
        ),
        (b"\x82\xff\x80" + bytes(7), "invalid 64-bit payload length"),
        (raw_frame(0x88, b"\x03"), "close frame payload cannot be 1 byte"),
    ],
)
@pytest.mark.parametrize("how", SPLITS)
def test_violation_is_named_as_reference_names_it(stream: bytes, text: str, how: str) -> None:
    found = violation(stream, how)
    assert found.text == text
    assert found.status == CloseStatus.PROTOCOL_ERROR


def test_compression_that_was_not_agreed_on_is_violation() -> None:
    decoder = FrameDecoder(lambda _: None)
    with pytest.raises(FrameViolation, match="without negotiated permessage-deflate"):
        decoder.feed(packed(DATA), [])


@pytest.mark.parametrize("how", SPLITS)
@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xff\xff\xffgarbage",
        deflate(DATA * 9)[:-5],
        deflate(DATA) + b"\0\0\xff\xff",
        b"\x00\xff\x00\x00\xff",  # a stored block that never comes
    ],
)
def test_corrupt_compressed_message_is_violation(payload: bytes, how: str) -> None:
    found = violation(frame(BINARY, payload, rsv1=True), how)
    assert found.status == CloseStatus.INVALID_DATA


@pytest.mark.parametrize(
    "code", [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 4999]
)
def test_close_is_answered_in_kind(code: int) -> None:
    payload = struct.pack("!H", code) + b"bye"
    with pytest.raises(PeerClosed) as caught:
        Received().feed(frame(CLOSE, payload), "bytes")
    assert caught.value.reply == payload


@pytest.mark.parametrize("code", [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535])
def test_close_statuses_that_mean_nothing_are_violations(code: int) -> None:
    assert violation(frame(CLOSE, struct.pack("!H", code))).text == (
        f"invalid close status code {code}"
    )


def test_close_without_status_or_with_bad_reason() -> None:
    with pytest.raises(PeerClosed) as caught:
        Received().feed(frame(CLOSE, b""))
    assert caught.value.reply == b""
    with pytest.raises(PeerClosed) as caught:
        Received().feed(frame(CLOSE, b"\x03\xe8\xff"))
    assert caught.value.reply == b"\x03\xefinvalid utf8 body in close frame"


def test_messages_before_the_end_are_delivered() -> None:
    received = Received()
    with pytest.raises(PeerClosed):
        received.feed(frame(BINARY, DATA) + packed(DATA) + frame(CLOSE, b"") + frame(BINARY, DATA))
    assert received.data == DATA * 2


def test_claimed_length_takes_no_memory() -> None:
    received = Received().feed(b"\x82\xff\x40" + bytes(7) + bytes(4) + DATA, "random")
    assert received.data == DATA


def test_bomb_comes_out_in_bounded_portions() -> None:
    size = 40 * 1024 * 1024
    bomb = packed(bytes(size)) + frame(BINARY, DATA)
    assert len(bomb) < size // 900
    received = Received().feed(bomb)
    assert max(received.portions) <= RECEIVE_BYTES_MAX + len(DATA)
    assert len(received.data) == size + len(DATA)


def test_many_small_bombs_in_one_chunk_are_bounded_too() -> None:
    size = 300_000
    received = Received().feed(packed(bytes(size)) * 40 + frame(PING, b"end"))
    assert max(received.portions) <= RECEIVE_BYTES_MAX
    assert len(received.data) == 40 * size
    assert received.replies == [b"\x8a\x03end"]


def test_portion_that_ends_with_message_does_not_hold_back_the_next_frame() -> None:
    stream = packed(bytes(RECEIVE_BYTES_MAX)) + frame(BINARY, DATA) + packed(DATA)
    assert Received().feed(stream).data == bytes(RECEIVE_BYTES_MAX) + DATA * 2


def test_message_beyond_its_limit_is_too_big() -> None:
    received = Received(message_bytes_max=1_000_000)
    received.feed(packed(bytes(1_000_000)) * 3)
    with pytest.raises(FrameViolation) as caught:
        received.feed(packed(bytes(1_000_001)))
    assert caught.value.status == CloseStatus.TOO_BIG


def test_nothing_accumulates_after_last_block_of_message() -> None:
    inflater = FrameInflater(1000)
    inflater.push(zlib.compress(DATA, wbits=-15))
    assert inflater.drain(1000) == DATA
    for _ in range(100):
        inflater.push(os.urandom(1000))
        assert inflater.drain(1000) == b""
    assert inflater._engine.unused_data == b""


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_encoded_frame_has_shortest_length(size: int) -> None:
    raw = encode_frame(BINARY, bytes(size))
    head = 2 if size < 126 else 4 if size < 65536 else 10
    assert len(raw) == head + size
    assert Received(masked=False).feed(raw, "random").data == bytes(size)


def frames_of(raw: bytes) -> list[tuple[int, int]]:
    """First byte and length of each unmasked frame."""
    found = []
    at = 0
    while at < len(raw):
        first, length, body = raw[at], raw[at + 1], at + 2
        if length == 126:
            (length,) = struct.unpack_from("!H", raw, body)
            body += 2
        elif length == 127:
            (length,) = struct.unpack_from("!Q", raw, body)
            body += 8
        found.append((first, length))
        at = body + length
    return found


@pytest.mark.parametrize("size", [1, 4096, 4097, 10_000])
@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("frame_bytes_max", [0, BROWSER_FRAME_BYTES_MAX])
def test_encoded_value_decodes_to_itself(size: int, compress: bool, frame_bytes_max: int) -> None:
    for data in (os.urandom(size), bytes(size), os.urandom(size // 2) + bytes(size)):
        raw = encode_message(data, compress=compress, frame_bytes_max=frame_bytes_max)
        assert Received(masked=False).feed(raw, "random").data == data
        if frame_bytes_max:
            assert all(length <= frame_bytes_max for _, length in frames_of(raw))


def test_browsers_get_plain_data_in_messages_and_compressed_data_in_fragments() -> None:
    size = BROWSER_FRAME_BYTES_MAX
    plain = encode_message(bytes(2 * size + 1), compress=False, frame_bytes_max=size)
    assert frames_of(plain) == [(0x82, size), (0x82, size), (0x82, 1)]
    half_random = os.urandom(3 * size // 2) + bytes(size)
    fragments = frames_of(encode_message(half_random, compress=True, frame_bytes_max=size))
    assert [first for first, _ in fragments] == [0x42, 0x80]


def test_small_and_incompressible_data_is_sent_as_it_is() -> None:
    small = encode_message(bytes(COMPRESS_BYTES_MIN - 1), compress=True, frame_bytes_max=0)
    assert small[0] == 0x82
    assert encode_message(bytes(COMPRESS_BYTES_MIN), compress=True, frame_bytes_max=0)[0] == 0xC2
    assert encode_message(os.urandom(500), compress=True, frame_bytes_max=0)[0] == 0x82


def test_close_reason_is_cut_to_what_control_frame_holds() -> None:
    assert close_payload(1000, "x" * 123) == b"\x03\xe8" + b"x" * 123
    assert close_payload(1000, "x" * 124) == b"\x03\xe8" + b"x" * 120 + b"..."
    cut = close_payload(1000, "é" * 100)
    assert len(cut) <= 125
    cut[2:].decode()
