"""S2 streams: blocks in frames, each with a checksum, read and written piece by piece.

    0  u8 kind   1 u24 length of the rest, little endian
    kind 0xff: the stream begins; 0: u32 checksum, S2 block; 1: u32 checksum, plain bytes
    other kinds from 0x80 on are skipped, all others are an error

The checksum is the CRC-32C of the frame's decoded contents, rotated and offset as in Snappy's
framing. A frame holds at most 4 MiB of decoded bytes. A caller that calls `next` until it returns
None after every `feed` keeps at most one frame in memory, whatever the input.
"""

from __future__ import annotations

from typing import Final

from penstock.records.s2 import ENCODED_BYTES_MAX, crc32c, decode_block, encode_block

__all__ = ["Deflater", "InvalidStream", "S2Inflater", "snappy_frames"]

START: Final = b"\xff\x06\x00\x00S2sTwO"
"""The first frame of every stream."""
SNAPPY_NAME: Final = b"sNaPpY"
SNAPPY_BLOCK_BYTES_MAX: Final = 65_536
"""Maximum decoded bytes in one frame of a Snappy stream."""
BLOCK_BYTES_MAX: Final = 4 << 20
"""Maximum decoded bytes of a block; larger ones are not valid S2."""
FRAME_BYTES_MAX: Final = BLOCK_BYTES_MAX + BLOCK_BYTES_MAX // 6 + 64
WRITTEN_BYTES: Final = ENCODED_BYTES_MAX
WORTHWHILE: Final = 8
"""A block is written compressed if that saves one byte in so many."""

_HEAD_BYTES: Final = 4
_SUM_BYTES: Final = 4
_COMPRESSED: Final = 0x00
_PLAIN: Final = 0x01
_SKIPPED_FROM: Final = 0x80
_NAME: Final = 0xFF


class InvalidStream(ValueError):
    """The bytes are not a valid S2 stream."""


def masked_sum(data: bytes) -> bytes:
    """Return the checksum in the form that frames contain."""
    crc = crc32c(data)
    return (((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF).to_bytes(4, "little")


def snappy_frames(data: bytes) -> bytes:
    """Return the bytes as a Snappy stream with uncompressed frames: for short data."""
    made = [bytes((_NAME, len(SNAPPY_NAME), 0, 0)), SNAPPY_NAME]
    for start in range(0, len(data), SNAPPY_BLOCK_BYTES_MAX):
        block = data[start : start + SNAPPY_BLOCK_BYTES_MAX]
        size = len(block) + _SUM_BYTES
        made += [bytes((_PLAIN,)), size.to_bytes(3, "little"), masked_sum(block), block]
    return b"".join(made)


class S2Inflater:
    """Reads a stream."""

    __slots__ = ("_buffer", "_has_begun", "_to_skip")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._has_begun = False
        self._to_skip = 0

    def feed(self, data: bytes) -> None:
        """Add more bytes of the stream."""
        self._buffer += data

    def next(self) -> bytes | None:
        """Return the contents of the next frame; None if incomplete. Raises InvalidStream."""
        while True:
            self._skip()
            if self._to_skip or len(self._buffer) < _HEAD_BYTES:
                return None
            kind, size = self._buffer[0], int.from_bytes(self._buffer[1:_HEAD_BYTES], "little")
            if not self._has_begun and kind != _NAME:
                raise InvalidStream("not an S2 stream")
            if kind >= _SKIPPED_FROM and kind != _NAME:
                self._to_skip = _HEAD_BYTES + size
                continue
            if kind not in (_COMPRESSED, _PLAIN, _NAME) or size > FRAME_BYTES_MAX:
                raise InvalidStream(f"a frame of kind {kind} and {size} bytes")
            if len(self._buffer) < _HEAD_BYTES + size:
                return None
            body = bytes(self._buffer[_HEAD_BYTES : _HEAD_BYTES + size])
            del self._buffer[: _HEAD_BYTES + size]
            if kind == _NAME:
                self._begin(body)
                continue
            return _contents(kind, body)

    def _skip(self) -> None:
        passed = min(self._to_skip, len(self._buffer))
        del self._buffer[:passed]
        self._to_skip -= passed

    def _begin(self, name: bytes) -> None:
        if name not in (START[_HEAD_BYTES:], SNAPPY_NAME):
            raise InvalidStream("not an S2 stream")
        self._has_begun = True

    @property
    def is_between_frames(self) -> bool:
        """Whether the stream may end here."""
        return not self._buffer and not self._to_skip


def _contents(kind: int, body: bytes) -> bytes:
    if len(body) < _SUM_BYTES:
        raise InvalidStream("a frame without checksum")
    data = body[_SUM_BYTES:]
    if kind == _COMPRESSED:
        try:
            data = decode_block(data, BLOCK_BYTES_MAX)
        except ValueError as error:
            raise InvalidStream(str(error)) from error
    if len(data) > BLOCK_BYTES_MAX or masked_sum(data) != body[:_SUM_BYTES]:
        raise InvalidStream("a frame does not hold what its checksum says")
    return data


class Deflater:
    """Writes a stream."""

    __slots__ = ("_buffer", "_start")

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = START

    def add(self, data: bytes) -> bytes:
        """Add data; return the frames that are full, often none."""
        self._buffer += data
        if len(self._buffer) < WRITTEN_BYTES:
            return b""
        frames = [self._begin()]
        while len(self._buffer) >= WRITTEN_BYTES:
            frames.append(_frame(bytes(self._buffer[:WRITTEN_BYTES])))
            del self._buffer[:WRITTEN_BYTES]
        return b"".join(frames)

    def finish(self) -> bytes:
        """Return the rest. The stream ends here."""
        rest = bytes(self._buffer)
        self._buffer.clear()
        return self._begin() + (_frame(rest) if rest else b"")

    def _begin(self) -> bytes:
        start, self._start = self._start, b""
        return start


def _frame(data: bytes) -> bytes:
    block = encode_block(data)
    kind = _COMPRESSED
    if len(block) + len(data) // WORTHWHILE > len(data):
        kind, block = _PLAIN, data
    size = _SUM_BYTES + len(block)
    return bytes((kind,)) + size.to_bytes(3, "little") + masked_sum(data) + block
