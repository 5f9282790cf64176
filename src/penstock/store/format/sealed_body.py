"""Sealed bodies: the bytes of a finished block, compressed, encrypted or both, chunk by chunk.

    0 "PENSEAL" 1 | 8 u32 chunk bytes | 12 u32 chunks | 16 u64 plain length | 24 u64 salt
    32 u8 compression | 33 u8 cipher | 34 u16 key number | 36 u32 0
    40 u32 frame length per chunk, zeros up to a multiple of 8 | u64 checksum | the frames

The header records where each chunk lies, so reading one record costs one chunk. The header is
optional: frames describe themselves, and a scan finds them if the header is damaged. Damage in a
chunk costs only that chunk and is always reported. The writer of a body gives it a fresh salt; a
frame with another salt is a leftover and is ignored. Pure: bytes in, bytes out.
"""

from __future__ import annotations

import contextlib
import struct
from collections import Counter
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from penstock.records.record_codec import checksum
from penstock.store.format.block_frames import (
    ALIGNMENT,
    BODY_BYTES_MAX,
    FRAME_BYTES,
    BadFrame,
    Binding,
    Frame,
    FrameReader,
    FrameWriter,
    NotOpened,
    assemble,
)
from penstock.store.format.compression import CHUNK_BYTES, CHUNK_BYTES_MAX, BlockCompression
from penstock.store.format.encryption import Cipher, WrongKey

if TYPE_CHECKING:
    from collections.abc import Mapping

    from penstock.store.format.compression import Data
    from penstock.store.format.encryption import DataKey

MAGIC = b"PENSEAL\x01"
CHUNK_BYTES_MIN = 4096
_HEADER = struct.Struct("<8sIIQQBBHI")
_CIPHER_AT = 33
_SUM = struct.Struct("<Q")
_BINDING = struct.Struct("<QQ")
#: Bytes to read of a body to learn the length of its header.
PRELUDE_BYTES = _HEADER.size


class BadSeal(Exception):
    """The header of a sealed body is damaged."""


class Damaged(Exception):
    """Rewriting the body would lose the contents of its damaged chunks."""


class Unsealed(NamedTuple):
    """The plain bytes, with zeros where they are lost.

    `damaged` are ranges of the plain bytes. `header_damaged`: a scan found the frames. `complete`
    is False if both the last frame and the header are missing, so that the length is a guess.
    """

    plain: bytearray
    damaged: tuple[tuple[int, int], ...]
    header_damaged: bool
    complete: bool

    @property
    def whole(self) -> bool:
        return self.complete and not self.damaged and not self.header_damaged


@dataclass(frozen=True, slots=True)
class SealedHeader:
    """Where the chunks of a sealed body lie."""

    chunk_bytes: int
    plain_bytes: int
    salt: int
    positions: tuple[int, ...]
    is_encrypted: bool = True
    """False: the body was written before the store had a key, so no key is used to read it."""

    def keys_of(self, keys: Mapping[int, DataKey]) -> Mapping[int, DataKey]:
        """Return the keys to read the frames with: an encrypted body has only encrypted frames."""
        return keys if self.is_encrypted else {}

    def chunks(self, start: int, stop: int) -> range:
        """Return the chunks that hold the plain bytes from `start` to before `stop`."""
        return range(start // self.chunk_bytes, -(-min(stop, self.plain_bytes) // self.chunk_bytes))

    def span(self, chunk: int) -> tuple[int, int]:
        """Return where the chunk's frame starts and stops in the sealed body."""
        return self.positions[chunk], self.positions[chunk + 1]

    def plain_span(self, chunk: int) -> tuple[int, int]:
        start = chunk * self.chunk_bytes
        return start, min(start + self.chunk_bytes, self.plain_bytes)

    def open_chunk(self, reader: FrameReader, chunk: int, frame: Data) -> Data:
        """Return the plain bytes of a chunk from the bytes at its span, or raise BadFrame."""
        position, end = self.span(chunk)
        found = reader.read(frame, 0, position)
        start, stop = self.plain_span(chunk)
        last = chunk == len(self.positions) - 2
        where = (found.number, found.salt, found.offset, found.end, len(found.plain), found.last)
        if where != (chunk, self.salt, start, end, stop - start, last):
            raise BadFrame("a frame of another time lies in the place of this chunk")
        return found.plain


def seal_body(
    plain: Data,
    binding: Binding,
    salt: int,
    *,
    compression: BlockCompression = BlockCompression.NONE,
    key: DataKey | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> bytes:
    """Return the sealed body; `salt`: 64 fresh random bits, never used twice for a block."""
    if not CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX or len(plain) > BODY_BYTES_MAX:
        raise ValueError("the chunk size or the body is out of bounds")
    count = _chunk_count(len(plain), chunk_bytes)
    position = header_bytes(count)
    writer = FrameWriter(binding, salt, key=key, compression=compression, position=position)
    view = memoryview(plain)
    frames = [
        writer.frame(view[at * chunk_bytes :][:chunk_bytes], last=at == count - 1)
        for at in range(count)
    ]
    cipher, number = (key.cipher, key.number) if key else (0, 0)
    head = _HEADER.pack(MAGIC, chunk_bytes, count, len(plain), salt, compression, cipher, number, 0)
    head += struct.pack(f"<{count}I", *map(len, frames)) + bytes(count % 2 * 4)
    return b"".join([head, _SUM.pack(_header_sum(head, binding)), *frames])


def header_bytes(count: int) -> int:
    """Return the header length of a body with `count` chunks."""
    return _HEADER.size + (count + count % 2) * 4 + _SUM.size


def header_bytes_needed(prelude: Data) -> int:
    """Return the header length of a body, from its first PRELUDE_BYTES; or raise BadSeal."""
    return header_bytes(_prelude(prelude)[1])


def read_header(data: Data, binding: Binding) -> SealedHeader:
    """Return the checked header at the start of a sealed body, or raise BadSeal."""
    chunk_bytes, count, plain_bytes, salt = _prelude(data)
    length = header_bytes(count)
    if len(data) < length:
        raise BadSeal("the header is cut off")
    (expected,) = _SUM.unpack_from(data, length - _SUM.size)
    if _header_sum(bytes(data[: length - _SUM.size]), binding) != expected:
        raise BadSeal("the header does not hold what was written")
    lengths = struct.unpack_from(f"<{count}I", data, _HEADER.size)
    if any(n < FRAME_BYTES or n % ALIGNMENT for n in lengths):
        raise BadSeal("the header contradicts itself")
    positions = tuple(accumulate(lengths, initial=length))
    is_encrypted = data[_CIPHER_AT] != Cipher.NONE
    return SealedHeader(chunk_bytes, plain_bytes, salt, positions, is_encrypted)


def unseal_body(data: Data, binding: Binding, keys: Mapping[int, DataKey]) -> Unsealed:
    """Return all readable bytes of a sealed body. Raises WrongKey if only the key is missing."""
    try:
        header = read_header(data, binding)
    except BadSeal:
        return _unsealed_by_scan(data, binding, keys)
    reader = FrameReader(binding, header.keys_of(keys))
    frames, not_opened = [], False
    for chunk in range(len(header.positions) - 1):
        position, end = header.span(chunk)
        try:
            plain = header.open_chunk(reader, chunk, memoryview(data)[position:end])
        except BadFrame as bad:
            not_opened |= isinstance(bad, NotOpened)
            continue
        start, _ = header.plain_span(chunk)
        frames.append(Frame(chunk, position, end, start, header.salt, False, plain))
    if not_opened and not frames:
        raise WrongKey("no frame of the block opens with its data key")
    body, missing = assemble(frames, header.plain_bytes)
    return Unsealed(body, tuple(missing), header_damaged=False, complete=True)


# ------------------------------------------------------------------------ internals


def _unsealed_by_scan(data: Data, binding: Binding, keys: Mapping[int, DataKey]) -> Unsealed:
    # The header's length is unknown, but it is a multiple of the frames' alignment.
    found = FrameReader(binding, keys).scan(data).frames
    if not found and keys:
        with contextlib.suppress(WrongKey):  # it may have been written before the store had a key
            found = FrameReader(binding, {}).scan(data).frames
    if not found:
        return Unsealed(bytearray(), (), header_damaged=True, complete=False)
    ((salt, _),) = Counter(frame.salt for frame in found).most_common(1)
    frames = [frame for frame in found if frame.salt == salt]
    end = max(frame.offset + len(frame.plain) for frame in frames)
    body, missing = assemble(frames, end)
    complete = any(frame.last for frame in frames)
    return Unsealed(body, tuple(missing), header_damaged=True, complete=complete)


def _prelude(data: Data) -> tuple[int, int, int, int]:
    """Return chunk size, count, plain length and salt: within bounds, not checksummed yet."""
    if len(data) < _HEADER.size:
        raise BadSeal("too short for a sealed body")
    magic, chunk_bytes, count, plain_bytes, salt, *_ = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise BadSeal("no sealed body begins here")
    if not CHUNK_BYTES_MIN <= chunk_bytes <= CHUNK_BYTES_MAX or plain_bytes > BODY_BYTES_MAX:
        raise BadSeal("the header claims more than a block can hold")
    if count != _chunk_count(plain_bytes, chunk_bytes):
        raise BadSeal("the header contradicts itself")
    return chunk_bytes, count, plain_bytes, salt


def _chunk_count(plain_bytes: int, chunk_bytes: int) -> int:
    # An empty body has one chunk too, so that its emptiness is authenticated.
    return max(1, -(-plain_bytes // chunk_bytes))


def _header_sum(head: bytes, binding: Binding) -> int:
    return checksum(head, checksum(_BINDING.pack(*binding)))
