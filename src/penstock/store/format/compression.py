"""Compression of one chunk of a block: plain bytes to stored bytes and back.

Every chunk is independent, so reading one record needs one chunk, and damage stays in its chunk. A
chunk that hardly shrinks is stored uncompressed. Restoring never produces more bytes than the given
length, whatever the stored bytes claim; any other outcome raises `BadChunk`.

Shrinkers and restorers hold a compression context: only one thread at a time may use each. For the
choice of algorithm see docs/decisions/0012-compression.md.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import zstandard

#: Bytes of a block that are compressed, encrypted and checked together.
CHUNK_BYTES = 64 << 10
#: Maximum bytes of a chunk; a longer one is refused before any memory is allocated for it.
CHUNK_BYTES_MAX = 1 << 20
#: A chunk is stored compressed only if that saves one part in this many.
SAVING_PARTS_MIN = 16
ZSTD_LEVEL = 1

Data = bytes | bytearray | memoryview


class BlockCompression(IntEnum):
    """How a chunk is stored; the files contain these numbers."""

    NONE = 0
    ZSTD = 1


class BadChunk(Exception):
    """The stored bytes do not restore to a chunk of the given length."""


class Shrinker:
    """Compresses chunks, each independently."""

    def __init__(self, compression: BlockCompression) -> None:
        self._zstd: zstandard.ZstdCompressor | None = None
        if compression is BlockCompression.ZSTD:
            import zstandard

            # The frame header holds the length and the frame has a hash: zstd stores neither.
            self._zstd = zstandard.ZstdCompressor(
                level=ZSTD_LEVEL, write_content_size=False, write_checksum=False
            )

    def shrink(self, plain: Data) -> tuple[BlockCompression, Data]:
        """Return how to store the chunk, and the bytes to store."""
        if self._zstd is None or not plain:
            return BlockCompression.NONE, plain
        small = self._zstd.compress(plain)
        if len(small) * SAVING_PARTS_MIN > len(plain) * (SAVING_PARTS_MIN - 1):
            return BlockCompression.NONE, plain
        return BlockCompression.ZSTD, small


class Restorer:
    """Restores stored chunks; creates its context for the first compressed one."""

    def __init__(self) -> None:
        self._zstd: zstandard.ZstdDecompressor | None = None

    def restore(self, how: int, stored: Data, plain_bytes: int) -> Data:
        """Return the chunk of exactly `plain_bytes`, or raise BadChunk."""
        if plain_bytes > CHUNK_BYTES_MAX:
            raise BadChunk(f"a chunk of {plain_bytes} bytes is longer than any we write")
        if how == BlockCompression.NONE:
            plain = stored
        elif how == BlockCompression.ZSTD:
            plain = self._from_zstd(stored, plain_bytes)
        else:
            raise BadChunk(f"compression {how} is not known")
        if len(plain) != plain_bytes:
            raise BadChunk(f"restored to {len(plain)} bytes, not to {plain_bytes}")
        return plain

    def _from_zstd(self, stored: Data, plain_bytes: int) -> bytes:
        import zstandard

        if self._zstd is None:
            self._zstd = zstandard.ZstdDecompressor()
        try:
            claimed = zstandard.get_frame_parameters(stored).content_size
            # zstd would trust a length inside the data and allocate it, ignoring our limit.
            if claimed != zstandard.CONTENTSIZE_UNKNOWN:
                raise BadChunk("the compressed data brings a length of its own")
            return self._zstd.decompress(stored, max_output_size=plain_bytes)
        except zstandard.ZstdError as error:
            raise BadChunk(f"cannot be decompressed: {error}") from None
