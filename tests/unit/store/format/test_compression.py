"""Chunks come back as they went in, and nothing stored makes more bytes than it was told."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.format.compression import (
    CHUNK_BYTES,
    CHUNK_BYTES_MAX,
    BadChunk,
    BlockCompression,
    Restorer,
    Shrinker,
)

SHRINKER = Shrinker(BlockCompression.ZSTD)
RESTORER = Restorer()
TEXT = b'{"order": 17, "state": "paid", "currency": "EUR"}' * 200
BOMB_BYTES = 64 << 20


def small(plain: bytes = TEXT) -> bytes:
    how, stored = SHRINKER.shrink(plain)
    assert how is BlockCompression.ZSTD
    return bytes(stored)


@given(st.binary(max_size=2000), st.integers(1, 30), st.sampled_from(BlockCompression))
def test_chunk_comes_back_as_it_went_in(
    part: bytes, times: int, compression: BlockCompression
) -> None:
    plain = part * times
    how, stored = Shrinker(compression).shrink(plain)
    assert len(stored) <= len(plain)
    assert RESTORER.restore(how, stored, len(plain)) == plain


def test_repetitive_data_compresses_well() -> None:
    assert len(small()) * 20 < len(TEXT)


def test_incompressible_data_is_stored_uncompressed() -> None:
    noise = random.Random(1).randbytes(CHUNK_BYTES)
    assert SHRINKER.shrink(noise) == (BlockCompression.NONE, noise)
    # A saving too small to pay for the work of every later read.
    nearly = noise[: CHUNK_BYTES * 31 // 32] + bytes(CHUNK_BYTES // 32)
    assert SHRINKER.shrink(nearly) == (BlockCompression.NONE, nearly)


@pytest.mark.parametrize("declared", [True, False], ids=["length told", "length not told"])
def test_bomb_is_refused_without_being_unpacked(declared: bool) -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=declared).compress(bytes(BOMB_BYTES))
    restorer = Restorer()
    tracemalloc.start()
    try:
        with pytest.raises(BadChunk):
            restorer.restore(BlockCompression.ZSTD, bomb, CHUNK_BYTES)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 4 * CHUNK_BYTES


@pytest.mark.parametrize("told", [0, 1, len(TEXT) - 1, len(TEXT) + 1, CHUNK_BYTES_MAX])
def test_false_length_is_refused(told: int) -> None:
    with pytest.raises(BadChunk):
        RESTORER.restore(BlockCompression.ZSTD, small(), told)
    with pytest.raises(BadChunk):
        RESTORER.restore(BlockCompression.NONE, TEXT, told)


def test_length_beyond_every_chunk_is_refused_before_data_is_looked_at() -> None:
    with pytest.raises(BadChunk, match="longer than any"):
        RESTORER.restore(BlockCompression.ZSTD, b"", CHUNK_BYTES_MAX + 1)


def test_every_truncation_is_refused() -> None:
    stored = small()
    for end in range(len(stored)):
        with pytest.raises(BadChunk):
            RESTORER.restore(BlockCompression.ZSTD, stored[:end], len(TEXT))


def test_algorithm_not_known_is_refused() -> None:
    with pytest.raises(BadChunk, match="not known"):
        RESTORER.restore(9, TEXT, len(TEXT))


@given(st.binary(max_size=300), st.integers(0, 4096))
def test_garbage_is_refused_or_has_length_reported(garbage: bytes, told: int) -> None:
    for stored in (garbage, small()[:9] + garbage):
        try:
            plain = RESTORER.restore(BlockCompression.ZSTD, stored, told)
        except BadChunk:
            continue
        assert len(plain) == told


def test_restorer_continues_after_bad_data() -> None:
    with pytest.raises(BadChunk):
        RESTORER.restore(BlockCompression.ZSTD, small()[:-3], len(TEXT))
    assert RESTORER.restore(BlockCompression.ZSTD, small(), len(TEXT)) == TEXT


@pytest.mark.sockets
def test_importing_modules_loads_neither_compressor_nor_ciphers() -> None:
    code = (
        "import sys, penstock.store.format.sealed_body;"
        "print(sorted({'zstandard', 'cryptography'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
