"""S2 blocks: what was encoded comes back, and no bytes do harm."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from models import s2 as model
from penstock.records.s2 import ENCODED_BYTES_MAX, crc32c, decode_block, encode_block, set_quick

SIZE_MAX = 1 << 20
#: Made by the reference's library: copies from the last offset in all their lengths.
REPEATED = {
    "80f1041c616263646566676811081d006c3800": b"abcdefgh" * 10_000,
    "d3033c303132333435363738396162636465663e100000583e110004595a3e33000071110119008300": (
        b"0123456789abcdef0123456789abcdefX0123456789abcdefYZ0123456789abcdef" + b"q" * 400
    ),
}
TAGS = st.sampled_from([0x00, 0x04, 0xF0, 0xF4, 0xF8, 0xFC, 0x01, 0x05, 0x15, 0x19, 0x1D, 0x21,
                        0x02, 0x0A, 0xFE, 0x03, 0x0F])  # fmt: skip
PIECES = st.one_of(
    st.binary(max_size=8),
    st.builds(lambda tag, rest: bytes((tag,)) + rest, TAGS, st.binary(max_size=5)),
)


def repetitive() -> st.SearchStrategy[bytes]:
    part = st.binary(min_size=1, max_size=40)
    return st.lists(st.tuples(part, st.integers(1, 300)), max_size=12).map(
        lambda parts: b"".join(piece * times for piece, times in parts)[:ENCODED_BYTES_MAX]
    )


def decoded(block: bytes) -> bytes | None:
    try:
        return decode_block(block, SIZE_MAX)
    except ValueError:
        return None


@given(st.one_of(st.binary(max_size=300), repetitive()))
def test_encoded_values_round_trip(data: bytes) -> None:
    block = encode_block(data)
    assert decode_block(block, len(data)) == data
    assert model.decode_block(block) == data


@given(st.lists(PIECES, max_size=12), st.integers(0, 300))
def test_any_bytes_mean_what_format_reports(pieces: list[bytes], size: int) -> None:
    body = b"".join(pieces)
    head = bytes((size & 127 | 128, size >> 7)) if size > 127 else bytes((size,))
    for block in (head + body, body):
        expected = model.decode_block(block)
        if expected is None or len(expected) <= SIZE_MAX:
            assert decoded(block) == expected


@given(repetitive().filter(bool), st.data())
def test_damaged_block_is_refused_or_read_as_in_format(data: bytes, draw: st.DataObject) -> None:
    block = bytearray(encode_block(data))
    at = draw.draw(st.integers(0, len(block) - 1))
    block[at] ^= draw.draw(st.integers(1, 255))
    expected = model.decode_block(bytes(block))
    if expected is None or len(expected) <= SIZE_MAX:
        assert decoded(bytes(block)) == expected


@pytest.mark.parametrize("block", REPEATED)
def test_blocks_of_reference_are_read(block: str) -> None:
    assert decode_block(bytes.fromhex(block), SIZE_MAX) == REPEATED[block]


def test_block_cannot_hold_more_than_reader_allows() -> None:
    block = encode_block(b"x" * 1000)
    assert decode_block(block, 1000) == b"x" * 1000
    with pytest.raises(ValueError, match="not allowed"):
        decode_block(block, 999)
    with pytest.raises(ValueError, match="64 KiB"):
        encode_block(bytes(ENCODED_BYTES_MAX + 1))


def test_repetitive_data_compresses_and_noise_hardly_grows() -> None:
    assert len(encode_block(b'{"id":1,"name":"x"}' * 3000)) < 4000
    noise = bytes((n * n * 31 + n * 7) % 251 for n in range(50_000))
    assert len(encode_block(noise)) < 51_000


@pytest.mark.parametrize("quick", [True, False], ids=["by the processor", "by tables"])
def test_checksum_is_castagnolis(quick: bool) -> None:
    set_quick(quick)
    try:
        check_checksums()
    finally:
        set_quick(True)


def check_checksums() -> None:
    odd = bytes(n * 7 % 256 for n in range(1003))
    assert crc32c(odd) == model.crc32c(odd)
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA
