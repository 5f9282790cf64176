"""Frames of an active block: found again after damage, bound to their place, never forged."""

from __future__ import annotations

import struct
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.record_codec import checksum
from penstock.store.format import block_frames as frames_module
from penstock.store.format.block_frames import (
    BODY_BYTES_MAX,
    HEADER_BYTES,
    BadFrame,
    Binding,
    FrameReader,
    FrameWriter,
    NotOpened,
    Scan,
    assemble,
)
from penstock.store.format.compression import CHUNK_BYTES, CHUNK_BYTES_MAX, BlockCompression
from penstock.store.format.encryption import TAG_BYTES, Cipher, DataKey, WrongKey

HERE = Binding(incarnation=11, block=4)
AES = DataKey(bytes(range(32)), Cipher.AES_256_GCM, 1)
CHACHA = DataKey(bytes(range(1, 33)), Cipher.CHACHA20_POLY1305, 2)
FLUSHES = [b"first flush, a short one", b"second " * 20, b"third and last, not aligned"]
MODES = [(None, BlockCompression.NONE), (None, BlockCompression.ZSTD), (AES, BlockCompression.NONE)]
MODES += [(CHACHA, BlockCompression.NONE), (AES, BlockCompression.ZSTD)]
MODE_NAMES = ["plain", "zstd", "aes", "chacha", "zstd+aes"]
every_mode = pytest.mark.parametrize(("key", "compression"), MODES, ids=MODE_NAMES)


def written(
    key: DataKey | None = AES, compression: BlockCompression = BlockCompression.NONE, salt: int = 99
) -> list[bytes]:
    writer = FrameWriter(HERE, salt, key=key, compression=compression)
    return [writer.frame(flush) for flush in FLUSHES]


def reader(key: DataKey | None = AES, binding: Binding = HERE) -> FrameReader:
    return FrameReader(binding, {key.number: key} if key else {})


def plains(scan: Scan) -> list[bytes]:
    return [bytes(frame.plain) for frame in scan.frames]


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def checked_again(frame: bytes, position: int) -> bytes:
    """The frame with checksums that fit what it now says, as a forger would leave it."""
    place = struct.pack("<QQQ", *HERE, position)
    head = frame[: HEADER_BYTES - 4]
    head += struct.pack("<I", checksum(head + place) & 0xFFFFFFFF)
    stored = frame[HEADER_BYTES:-8]
    return head + stored + struct.pack("<Q", checksum(stored, checksum(head + place)))


# ------------------------------------------------------------------------ what comes back


@every_mode
@given(flushes=st.lists(st.binary(min_size=1, max_size=200), max_size=8), blank=st.integers(0, 99))
def test_flushes_come_back_in_order_up_to_blank_space(
    key: DataKey | None, compression: BlockCompression, flushes: list[bytes], blank: int
) -> None:
    writer = FrameWriter(HERE, 5, key=key, compression=compression)
    data = b"".join(writer.frame(flush) for flush in flushes)
    scan = reader(key).scan(data + bytes(blank))
    assert plains(scan) == flushes
    assert (scan.damaged, scan.end, scan.torn_bytes) == ([], len(data), 0)
    assert assemble(scan.frames, writer.offset) == (b"".join(flushes), [])


@every_mode
def test_long_flush_becomes_several_frames(
    key: DataKey | None, compression: BlockCompression
) -> None:
    plain = bytes(range(256)) * 1000
    writer = FrameWriter(HERE, 5, key=key, compression=compression)
    scan = reader(key).scan(memoryview(writer.frames(plain)))
    assert len(scan.frames) == -(-len(plain) // CHUNK_BYTES)
    assert b"".join(plains(scan)) == plain


def test_frames_may_begin_after_other_bytes() -> None:
    writer = FrameWriter(HERE, 5, key=AES, position=64)
    scan = reader().scan(bytes(64) + writer.frames(b"plain"), 64)
    assert plains(scan) == [b"plain"]
    with pytest.raises(ValueError, match="multiples"):
        FrameWriter(HERE, 5, position=3)


def test_plain_text_does_not_show_in_encrypted_frames() -> None:
    assert b"flush" not in b"".join(written(AES))
    assert b"flush" in b"".join(written(None))


# ------------------------------------------------------------------------ damage


@every_mode
def test_every_flipped_bit_costs_its_frame_only_and_is_reported(
    key: DataKey | None, compression: BlockCompression
) -> None:
    first, second, third = written(key, compression)
    rest = [FLUSHES[0], FLUSHES[2]]
    for bit in range(len(second) * 8):
        scan = reader(key).scan(first + flipped(second, bit) + third)
        assert plains(scan) == rest, bit
        assert scan.damaged == [(len(first), len(first) + len(second))]
        _, missing = assemble(scan.frames, sum(map(len, FLUSHES)))
        assert missing == [(len(FLUSHES[0]), len(FLUSHES[0]) + len(FLUSHES[1]))]


@every_mode
def test_every_truncation_keeps_frames_before_it_and_counts_torn_bytes(
    key: DataKey | None, compression: BlockCompression
) -> None:
    parts = written(key, compression)
    data = b"".join(parts)
    ends = [sum(map(len, parts[:n])) for n in range(len(parts) + 1)]
    for length in range(len(data) + 1):
        scan = reader(key).scan(data[:length])
        kept = sum(end <= length for end in ends) - 1
        assert plains(scan) == FLUSHES[:kept]
        assert (scan.end, scan.damaged) == (ends[kept], [])
        assert scan.torn_bytes == len(data[ends[kept] : length].rstrip(b"\0"))


def test_zeroed_page_costs_what_it_touched() -> None:
    writer = FrameWriter(HERE, 5, key=AES)
    flushes = [b"%d" % n * 100 for n in range(40)]
    data = bytearray(b"".join(writer.frame(flush) for flush in flushes))
    data[4096:8192] = bytes(4096)
    scan = reader().scan(data)
    ((start, stop),) = scan.damaged
    assert 4096 - 300 < start <= 4096
    assert 8192 <= stop < 8192 + 300
    lost = [flush for flush in flushes if flush not in plains(scan)]
    first = flushes.index(lost[0])
    assert plains(scan) == flushes[:first] + flushes[first + len(lost) :]


def test_bytes_that_look_like_headers_do_not_stop_scan() -> None:
    first, _, _ = written(None)
    writer = FrameWriter(HERE, 99, position=len(first) + 800, number=5, offset=900)
    data = first + b"PF\x01\0\0\0\0\0" * 100 + writer.frame(b"behind")
    assert plains(reader(None).scan(data)) == [FLUSHES[0], b"behind"]


# ------------------------------------------------------------------------ binding


@every_mode
def test_frames_that_changed_places_are_no_frames(
    key: DataKey | None, compression: BlockCompression
) -> None:
    writer = FrameWriter(HERE, 5, key=key, compression=compression)
    a, b, c = (writer.frame(b"%d" % n * 64) for n in range(3))
    assert len(a) == len(b)
    assert plains(reader(key).scan(b + a + c)) == [b"2" * 64]
    assert plains(reader(key).scan(a + a + c)) == [b"0" * 64, b"2" * 64]


@every_mode
@pytest.mark.parametrize("elsewhere", [Binding(11, 5), Binding(12, 4)], ids=["block", "stream"])
def test_frames_of_another_block_or_stream_are_no_frames(
    key: DataKey | None, compression: BlockCompression, elsewhere: Binding
) -> None:
    scan = reader(key, elsewhere).scan(b"".join(written(key, compression)))
    assert scan.frames == []
    assert scan.torn_bytes > 0


@pytest.mark.parametrize("key", [AES, CHACHA], ids=["aes", "chacha"])
def test_forger_without_key_changes_nothing_unnoticed(key: DataKey) -> None:
    first, second, _ = written(key)
    fields = range((HEADER_BYTES - 4) * 8)
    stored = range(HEADER_BYTES * 8, (HEADER_BYTES + len(FLUSHES[1]) + TAG_BYTES) * 8)
    for bit in [*fields, *stored]:
        fake = checked_again(flipped(second, bit), len(first))
        # WrongKey: the forged frame names a key that there is not.
        with suppress(WrongKey):
            assert plains(reader(key).scan(first + fake)) == [FLUSHES[0]], bit


def test_frame_that_is_not_encrypted_is_refused_where_frames_must_be() -> None:
    with pytest.raises(BadFrame, match="not encrypted"):
        reader(AES).read(written(None)[0], 0, 0)


# ------------------------------------------------------------------------ keys


def test_wrong_data_key_is_distinguished_from_damage() -> None:
    data = b"".join(written(AES))
    wrong = FrameReader(HERE, {1: DataKey(bytes(32))})
    with pytest.raises(WrongKey):
        wrong.scan(data)
    with pytest.raises(NotOpened):
        wrong.read(data, 0, 0)


@pytest.mark.parametrize("keys", [{}, {2: CHACHA}, {1: CHACHA}], ids=["none", "other", "cipher"])
def test_without_its_key_whole_frame_is_wrong_key_and_damaged_one_is_damage(
    keys: dict[int, DataKey],
) -> None:
    frame = written(AES)[0]
    blind = FrameReader(HERE, keys)
    with pytest.raises(WrongKey, match="data key 1"):
        blind.read(frame, 0, 0)
    for bit in range(len(frame) * 8):
        with pytest.raises(BadFrame):
            blind.read(flipped(frame, bit), 0, 0)


def test_blocks_of_two_data_keys_are_read_side_by_side() -> None:
    old = FrameWriter(HERE, 5, key=AES)
    head = old.frame(b"old")
    new = FrameWriter(
        HERE, 6, key=CHACHA, position=old.position, number=old.number, offset=old.offset
    )
    both = FrameReader(HERE, {1: AES, 2: CHACHA})
    assert plains(both.scan(head + new.frame(b"new"))) == [b"old", b"new"]


def test_writer_after_recovery_shares_no_key_stream_with_one_that_was_cut_off() -> None:
    lost = FrameWriter(HERE, salt=1, key=AES)
    kept, torn = lost.frame(b"kept"), lost.frame(bytes(64))
    scan = reader().scan(kept + torn[:-1])
    last = scan.frames[-1]
    again = FrameWriter(
        HERE,
        salt=2,
        key=AES,
        position=scan.end,
        number=last.number + 1,
        offset=last.offset + len(last.plain),
    )
    anew = again.frame(bytes(64))
    # Same number, same place, same plain bytes: only the salt keeps them apart.
    assert anew[8:24] == torn[8:24]
    assert anew[HEADER_BYTES:][:64] != torn[HEADER_BYTES:][:64]
    assert plains(reader().scan(kept + anew)) == [b"kept", bytes(64)]


def test_leftover_of_earlier_writer_is_damage() -> None:
    old = FrameWriter(HERE, 1, key=AES)
    leftover = [old.frame(b"x" * 64) for _ in range(3)]
    new = FrameWriter(HERE, 2, key=AES, number=7)
    scan = reader().scan(new.frame(b"y" * 64) + leftover[1] + leftover[2])
    assert plains(scan) == [b"y" * 64]
    assert scan.torn_bytes > 0


def test_reader_remembers_keys_of_bounded_number_of_writers() -> None:
    data, position = b"", 0
    for salt in range(3 * frames_module.CIPHERS_MAX):
        writer = FrameWriter(HERE, salt, key=AES, position=position, number=salt)
        data += writer.frame(b"restart")
        position = writer.position
    one = reader()
    assert len(one.scan(data).frames) == 3 * frames_module.CIPHERS_MAX
    assert len(one._ciphers) == frames_module.CIPHERS_MAX


# ------------------------------------------------------------------------ bounds


def test_no_frame_is_longer_or_later_than_block_allows() -> None:
    with pytest.raises(ValueError, match="too long"):
        FrameWriter(HERE, 1).frame(bytes(CHUNK_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="too long"):
        FrameWriter(HERE, 1, offset=BODY_BYTES_MAX).frame(b"x")
    with pytest.raises(ValueError, match="too many"):
        FrameWriter(HERE, 1, number=1 << 32).frame(b"x")


@pytest.mark.parametrize(
    ("at", "shape", "value"),
    [
        (2, "<B", 2),
        (3, "<B", 9),
        (4, "<B", 3),
        (5, "<B", 2),
        (12, "<I", CHUNK_BYTES_MAX + 1),
        (12, "<I", len(FLUSHES[0]) - 1),
        (16, "<Q", BODY_BYTES_MAX),
        (16, "<Q", 2**64 - 1),
        (24, "<I", len(FLUSHES[0]) + 1),
        (24, "<I", 2**32 - 1),
    ],
)
def test_number_that_cannot_be_is_refused_though_checksums_fit(
    at: int, shape: str, value: int
) -> None:
    frame = bytearray(written(None)[0])
    struct.pack_into(shape, frame, at, value)
    with pytest.raises(BadFrame, match=r"not known|more than|contradict"):
        reader(None).read(checked_again(bytes(frame), 0), 0, 0)


@given(st.binary(max_size=400))
def test_garbage_holds_no_frames(garbage: bytes) -> None:
    scan = reader().scan(garbage)
    assert (scan.frames, scan.end) == ([], 0)
    assert scan.torn_bytes == len(garbage.rstrip(b"\0"))


def test_frames_that_overlap_do_not_overwrite_each_other() -> None:
    writer = FrameWriter(HERE, 1)
    data = writer.frame(b"aaaa")
    writer.offset = 2
    data += writer.frame(b"bbbb")
    found = reader(None).scan(data).frames
    assert assemble(found, 8) == (b"aaaa\0\0\0\0", [(4, 8)])
