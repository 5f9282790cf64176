"""S2 streams: any pieces give the same bytes, and damage is seen."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.s2_stream import (
    BLOCK_BYTES_MAX,
    START,
    Deflater,
    InvalidStream,
    S2Inflater,
    masked_sum,
)

TEXT = b"".join(b'{"number":%d,"name":"n%d"}' % (n, n % 7) for n in range(4000))
NOISE = random.Random(1).randbytes(70_000)


def written(data: bytes) -> bytes:
    deflater = Deflater()
    return deflater.add(data) + deflater.finish()


def read(stream: bytes, cuts: list[int] | None = None) -> bytes:
    inflater = S2Inflater()
    out = []
    ends = sorted({min(cut, len(stream)) for cut in cuts or ()})
    for start, stop in pairwise([0, *ends, len(stream)]):
        inflater.feed(stream[start:stop])
        while (piece := inflater.next()) is not None:
            out.append(piece)
    assert inflater.is_between_frames
    return b"".join(out)


@given(st.lists(st.integers(0, 80_000), max_size=8))
def test_any_pieces_give_the_same_bytes(cuts: list[int]) -> None:
    for data in (TEXT, NOISE, b"", b"x"):
        assert read(written(data), cuts) == data


def test_pieces_form_one_stream() -> None:
    deflater = Deflater()
    stream = b"".join(deflater.add(TEXT[at : at + 999]) for at in range(0, len(TEXT), 999))
    assert read(stream + deflater.finish()) == TEXT


def test_text_is_compressed_and_noise_is_not_made_larger() -> None:
    assert len(written(TEXT)) < len(TEXT) / 3
    assert len(written(NOISE)) < len(NOISE) + 50


def test_flipped_bit_is_seen_or_harmless() -> None:
    stream = written(TEXT[:3000])
    for at in range(len(stream)):
        damaged = bytearray(stream)
        damaged[at] ^= 1 << at % 8
        inflater = S2Inflater()
        inflater.feed(bytes(damaged))
        found = []
        try:
            while (piece := inflater.next()) is not None:
                found.append(piece)
        except InvalidStream:
            continue
        assert b"".join(found) in (b"", TEXT[:3000])
        assert found or not inflater.is_between_frames or at >= len(START)


def test_stream_that_is_cut_off_does_not_look_whole() -> None:
    stream = written(TEXT[:3000])
    for stop in range(len(START) + 1, len(stream)):
        inflater = S2Inflater()
        inflater.feed(stream[:stop])
        assert inflater.next() is None
        assert not inflater.is_between_frames


def frame(kind: int, body: bytes) -> bytes:
    return bytes((kind,)) + len(body).to_bytes(3, "little") + body


def test_frames_that_may_be_passed_over_are() -> None:
    extras = frame(0xFE, bytes(5000)) + frame(0x99, b"index") + frame(0x80, b"")
    rest = written(TEXT)[len(START) :]
    assert read(START + extras + rest + extras, list(range(0, 6000, 7))) == TEXT


def test_stream_may_begin_again_and_as_snappy() -> None:
    snappy = frame(0xFF, b"sNaPpY") + written(b"b" * 100)[len(START) :]
    assert read(written(b"a" * 100) + snappy) == b"a" * 100 + b"b" * 100


@pytest.mark.parametrize(
    "stream",
    [
        b"garbage" * 100,
        frame(0x01, masked_sum(b"x") + b"x"),
        frame(0xFF, b"S2sTwX"),
        START + frame(0x02, b"reserved"),
        START + frame(0x00, b"abc"),
        START + frame(0x01, b"\0\0\0\0x"),
        START + b"\x00\xff\xff\xff",
        START + frame(0x01, masked_sum(bytes(BLOCK_BYTES_MAX + 1)) + bytes(BLOCK_BYTES_MAX + 1)),
    ],
)
def test_invalid_stream_is_refused(stream: bytes) -> None:
    inflater = S2Inflater()
    inflater.feed(stream)
    with pytest.raises(InvalidStream):
        inflater.next()
