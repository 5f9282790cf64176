"""Sealed bodies: one chunk per read, one chunk per damage, and nothing from elsewhere passes."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.records.record_codec import checksum
from penstock.store.format.block_frames import BODY_BYTES_MAX, BadFrame, Binding, FrameReader
from penstock.store.format.compression import CHUNK_BYTES_MAX, BlockCompression
from penstock.store.format.encryption import Cipher, DataKey, WrongKey
from penstock.store.format.sealed_body import (
    CHUNK_BYTES_MIN,
    PRELUDE_BYTES,
    BadSeal,
    header_bytes_needed,
    read_header,
    seal_body,
    unseal_body,
)

HERE = Binding(incarnation=11, block=4)
SALT = 0x1122334455667788
CHUNK = CHUNK_BYTES_MIN
AES = DataKey(bytes(range(32)), Cipher.AES_256_GCM, 1)
CHACHA = DataKey(bytes(range(1, 33)), Cipher.CHACHA20_POLY1305, 2)
MODES = [(None, BlockCompression.NONE), (None, BlockCompression.ZSTD), (AES, BlockCompression.NONE)]
MODES += [(CHACHA, BlockCompression.ZSTD)]
MODE_NAMES = ["plain", "zstd", "aes", "zstd+chacha"]
every_mode = pytest.mark.parametrize(("key", "compression"), MODES, ids=MODE_NAMES)
# Text, noise, text, and a short last chunk.
PLAIN = b"text " * 820 + random.Random(1).randbytes(CHUNK) + b"more text " * 500


def sealed(
    key: DataKey | None = AES,
    compression: BlockCompression = BlockCompression.NONE,
    plain: bytes = PLAIN,
    salt: int = SALT,
) -> bytes:
    return seal_body(plain, HERE, salt, key=key, compression=compression, chunk_bytes=CHUNK)


def ring(*keys: DataKey | None) -> dict[int, DataKey]:
    return {key.number: key for key in keys if key}


def flipped(data: bytes, bit: int) -> bytes:
    out = bytearray(data)
    out[bit // 8] ^= 1 << bit % 8
    return bytes(out)


def with_header(data: bytes, **changed: int) -> bytes:
    """The body with fields of its header changed and a checksum that fits again."""
    names = ("magic", "chunk_bytes", "count", "plain_bytes", "salt")
    shape = struct.Struct("<8sIIQQ")
    fields = dict(zip(names, shape.unpack_from(data), strict=True)) | changed
    end = header_bytes_needed(data[:PRELUDE_BYTES]) - 8
    head = shape.pack(*fields.values()) + data[shape.size : end]
    seed = checksum(struct.pack("<QQ", *HERE))
    return head + struct.pack("<Q", checksum(head, seed)) + data[end + 8 :]


# ------------------------------------------------------------------------ what comes back


@every_mode
@given(
    part=st.binary(min_size=1, max_size=300),
    length=st.integers(0, 5 * CHUNK) | st.sampled_from([0, 1, CHUNK - 1, CHUNK, CHUNK + 1]),
    salt=st.integers(0, 2**64 - 1),
)
def test_body_comes_back_as_it_went_in(
    key: DataKey | None, compression: BlockCompression, part: bytes, length: int, salt: int
) -> None:
    plain = (part * (length // len(part) + 1))[:length]
    found = unseal_body(sealed(key, compression, plain, salt), HERE, ring(key))
    assert found.plain == plain
    assert found.whole


@every_mode
def test_any_range_is_read_from_its_chunks_alone(
    key: DataKey | None, compression: BlockCompression
) -> None:
    body = sealed(key, compression)
    header = read_header(body[: header_bytes_needed(body[:PRELUDE_BYTES])], HERE)
    reader = FrameReader(HERE, ring(key))
    for start, stop in [(0, 1), (CHUNK - 1, CHUNK + 1), (5000, 5001), (0, 10**9), (9000, 9100)]:
        chunks = header.chunks(start, stop)
        parts = []
        for chunk in chunks:
            begin, end = header.span(chunk)
            parts.append(bytes(header.open_chunk(reader, chunk, body[begin:end])))
        first = header.plain_span(chunks[0])[0]
        assert b"".join(parts)[start - first : stop - first] == PLAIN[start:stop]
    assert header.span(len(header.positions) - 2)[1] == len(body)
    assert len(header.chunks(5000, 5001)) == 1


def test_text_shrinks_and_noise_costs_little() -> None:
    text, noise = b"text " * 13000, random.Random(2).randbytes(65000)
    assert len(seal_body(text, HERE, 1, compression=BlockCompression.ZSTD)) * 50 < len(text)
    assert len(seal_body(noise, HERE, 1, compression=BlockCompression.ZSTD, key=AES)) < 65000 + 140


# ------------------------------------------------------------------------ damage


@every_mode
def test_every_flipped_bit_of_header_costs_nothing_and_is_reported(
    key: DataKey | None, compression: BlockCompression
) -> None:
    body = sealed(key, compression)
    for bit in range(header_bytes_needed(body[:PRELUDE_BYTES]) * 8):
        found = unseal_body(flipped(body, bit), HERE, ring(key))
        assert (found.plain, found.damaged) == (PLAIN, ())
        assert (found.header_damaged, found.complete, found.whole) == (True, True, False)


@every_mode
def test_every_flipped_bit_of_chunk_costs_that_chunk_and_is_reported(
    key: DataKey | None, compression: BlockCompression
) -> None:
    body = sealed(key, compression)
    header = read_header(body, HERE)
    rng = random.Random(3)
    for chunk in range(len(header.positions) - 1):
        begin, end = header.span(chunk)
        edges = [*range(begin * 8, (begin + 48) * 8), *range((end - 24) * 8, end * 8)]
        start, stop = header.plain_span(chunk)
        for bit in [*edges, *(rng.randrange(begin * 8, end * 8) for _ in range(200))]:
            found = unseal_body(flipped(body, bit), HERE, ring(key))
            assert found.damaged == ((start, stop),)
            assert found.plain == PLAIN[:start] + bytes(stop - start) + PLAIN[stop:]


@every_mode
def test_truncated_body_reports_what_is_missing(
    key: DataKey | None, compression: BlockCompression
) -> None:
    body = sealed(key, compression)
    header = read_header(body, HERE)
    for length in [*header.positions[:-1], len(body) - 1, header.positions[1] + 9]:
        found = unseal_body(body[:length], HERE, ring(key))
        kept = sum(end <= length for end in header.positions[1:]) * CHUNK
        assert found.plain[:kept] == PLAIN[:kept]
        assert found.damaged == ((kept, len(PLAIN)),)
    for length in range(header.positions[0]):
        assert not unseal_body(body[:length], HERE, ring(key)).complete


def test_without_header_and_last_frame_length_is_not_believed() -> None:
    body = sealed(AES)
    cut = b"\0" + body[1 : read_header(body, HERE).positions[-2]]
    found = unseal_body(cut, HERE, ring(AES))
    assert (found.header_damaged, found.complete) == (True, False)
    assert found.plain == PLAIN[: len(PLAIN) // CHUNK * CHUNK]


def test_without_header_damaged_chunk_is_still_only_loss() -> None:
    body = sealed(AES)
    begin, _ = read_header(body, HERE).span(1)
    found = unseal_body(flipped(b"\0" + body[1:], (begin + 100) * 8), HERE, ring(AES))
    assert found.damaged == ((CHUNK, 2 * CHUNK),)
    assert found.complete


# ------------------------------------------------------------------------ binding


@every_mode
@pytest.mark.parametrize("elsewhere", [Binding(11, 5), Binding(12, 4)], ids=["block", "stream"])
def test_body_of_another_block_or_stream_yields_nothing(
    key: DataKey | None, compression: BlockCompression, elsewhere: Binding
) -> None:
    found = unseal_body(sealed(key, compression), elsewhere, ring(key))
    assert (found.plain, found.complete, found.header_damaged) == (b"", False, True)


@every_mode
def test_chunks_that_changed_places_are_lost(
    key: DataKey | None, compression: BlockCompression
) -> None:
    noise = random.Random(4).randbytes(3 * CHUNK)
    body = sealed(key, compression, noise)
    header = read_header(body, HERE)
    (a, b), (_, c) = header.span(0), header.span(1)
    assert b - a == c - b
    found = unseal_body(body[:a] + body[b:c] + body[a:b] + body[c:], HERE, ring(key))
    assert found.damaged == ((0, 2 * CHUNK),)


@every_mode
@pytest.mark.parametrize("headed", [True, False], ids=["header whole", "header lost"])
def test_chunk_of_earlier_writing_of_block_is_damage(
    key: DataKey | None, compression: BlockCompression, headed: bool
) -> None:
    noise = random.Random(5).randbytes(3 * CHUNK)
    old, new = sealed(key, compression, noise, salt=1), sealed(key, compression, noise, salt=2)
    begin, end = read_header(new, HERE).span(1)
    mixed = new[:begin] + old[begin:end] + new[end:]
    found = unseal_body(mixed if headed else b"\0" + mixed[1:], HERE, ring(key))
    assert found.damaged == ((CHUNK, 2 * CHUNK),)


def test_body_cut_short_with_header_made_to_fit_is_noticed() -> None:
    body = sealed(AES, plain=PLAIN[: 2 * CHUNK])
    header = read_header(body, HERE)
    shape = struct.Struct("<8sIIQQBBHIII")
    whole = list(shape.unpack_from(body))
    whole[2:4] = [1, CHUNK]
    whole[-1] = 0
    head = shape.pack(*whole)
    head += struct.pack("<Q", checksum(head, checksum(struct.pack("<QQ", *HERE))))
    assert len(head) == header.positions[0]
    found = unseal_body(head + body[slice(*header.span(0))], HERE, ring(AES))
    assert found.damaged == ((0, CHUNK),)


def test_chunk_opens_only_as_chunk_it_is() -> None:
    body = sealed(AES, plain=bytes(3 * CHUNK))
    header = read_header(body, HERE)
    reader = FrameReader(HERE, ring(AES))
    with pytest.raises(BadFrame):
        header.open_chunk(reader, 1, body[slice(*header.span(0))])


# ------------------------------------------------------------------------ bounds


@pytest.mark.parametrize(
    "false",
    [
        {"count": 0},
        {"count": 2**32 - 1},
        {"plain_bytes": 2**64 - 1},
        {"plain_bytes": BODY_BYTES_MAX + 1},
        {"chunk_bytes": 0},
        {"chunk_bytes": 2**32 - 1},
        {"chunk_bytes": CHUNK_BYTES_MAX + 1},
    ],
    ids=str,
)
def test_number_that_cannot_be_is_refused_though_checksum_fits(false: dict[str, int]) -> None:
    body = with_header(sealed(AES), **false)
    with pytest.raises(BadSeal):
        read_header(body, HERE)
    with pytest.raises(BadSeal):
        header_bytes_needed(body[:PRELUDE_BYTES])
    assert unseal_body(body, HERE, ring(AES)).plain == PLAIN


def test_body_or_chunk_size_out_of_bounds_is_not_sealed() -> None:
    for chunk_bytes in (0, CHUNK_BYTES_MIN - 1, CHUNK_BYTES_MAX + 1):
        with pytest.raises(ValueError, match="bounds"):
            seal_body(b"x", HERE, 1, chunk_bytes=chunk_bytes)


@given(st.binary(max_size=200), st.booleans())
def test_garbage_yields_nothing_and_reports_it(garbage: bytes, headed: bool) -> None:
    data = sealed()[:16] + garbage if headed else garbage
    found = unseal_body(data, HERE, ring(AES))
    assert (found.plain, found.complete, found.whole) == (b"", False, False)


# ------------------------------------------------------------------------ keys


@pytest.mark.parametrize("keys", [{}, {2: CHACHA}, {1: DataKey(bytes(32))}], ids=str)
@pytest.mark.parametrize("headed", [True, False], ids=["header whole", "header lost"])
def test_wrong_or_missing_key_is_refused_by_name(keys: dict[int, DataKey], headed: bool) -> None:
    body = sealed(AES)
    with pytest.raises(WrongKey):
        unseal_body(body if headed else b"\0" + body[1:], HERE, keys)


@pytest.mark.parametrize("headed", [True, False], ids=["header", "no header"])
@pytest.mark.parametrize("compression", [BlockCompression.NONE, BlockCompression.ZSTD])
def test_body_from_before_store_had_key_is_read(
    compression: BlockCompression, headed: bool
) -> None:
    body = sealed(None, compression)
    found = unseal_body(body if headed else flipped(body, 80), HERE, ring(AES))
    assert found.plain == PLAIN
    assert found.whole == headed


def test_frame_without_cipher_does_not_pass_in_encrypted_body() -> None:
    ours, forged = sealed(AES), sealed(None, plain=PLAIN.replace(b"text", b"lies"))
    header, false = read_header(ours, HERE), read_header(forged, HERE)
    ours_at, forged_at = header.positions[0], false.positions[0]
    body = bytearray(ours)
    body[ours_at:] = forged[forged_at : forged_at + len(ours) - ours_at].ljust(
        len(ours) - ours_at, b"\0"
    )
    assert b"lies" not in unseal_body(bytes(body), HERE, ring(AES)).plain
