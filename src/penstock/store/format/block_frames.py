"""Frames: compressed or encrypted bytes in a block file, each frame with its own checks.

    0 "PF" | 2 u8 version | 3 u8 compression | 4 u8 cipher | 5 u8 flags | 6 u16 key number
    8 u32 number | 12 u32 plain length | 16 u64 plain offset | 24 u32 stored length | 28 u64 salt
    36 u32 header checksum | 40 stored bytes (with tag), zeros up to a multiple of 8 | u64 hash

Checksum and hash are bound to stream incarnation, block and position in the file: a frame that
is stale, swapped or from another block is not valid. Both can be checked without a key, so damage
is distinct from a wrong key. The tag of an encrypted frame binds the same, and the whole header.

A flush of an active block writes one frame (several if it is long); a sealed block has one per
chunk. Readers use nothing from a frame before it is checked.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from penstock.records.record_codec import checksum
from penstock.store.format.compression import (
    CHUNK_BYTES,
    CHUNK_BYTES_MAX,
    BadChunk,
    BlockCompression,
    Restorer,
    Shrinker,
)
from penstock.store.format.encryption import (
    TAG_BYTES,
    Cipher,
    DataKey,
    FrameCipher,
    NotAuthentic,
    WrongKey,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.store.format.compression import Data

MAGIC = b"PF"
VERSION = 1
LAST = 1
ALIGNMENT = 8
#: Maximum plain bytes of one block: readers reject any offset beyond it.
BODY_BYTES_MAX = 1 << 30
NUMBER_MAX = 0xFFFFFFFF
#: Writers of one block whose keys a reader caches; a block has one, and one more per restart.
CIPHERS_MAX = 16

_HEADER = struct.Struct("<2sBBBBHIIQIQ")
_HEADER_SUM = struct.Struct("<I")
_HASH = struct.Struct("<Q")
_PLACE = struct.Struct("<QQQ")
HEADER_BYTES = _HEADER.size + _HEADER_SUM.size
#: Bytes that a frame adds to its stored bytes, without padding and tag.
FRAME_BYTES = HEADER_BYTES + _HASH.size


class BadFrame(Exception):
    """No valid frame lies here; `length` is the frame's length if its header is valid, else 0."""

    def __init__(self, reason: str, length: int = 0) -> None:
        super().__init__(reason)
        self.length = length


class NotOpened(BadFrame):
    """The frame is undamaged but does not open with the key it names."""


class Binding(NamedTuple):
    """What the frames of a block are bound to."""

    incarnation: int
    block: int


class Frame(NamedTuple):
    """A valid frame: `position` to `end` in the file, `plain` at `offset` in the block."""

    number: int
    position: int
    end: int
    offset: int
    salt: int
    last: bool
    plain: Data


class Scan(NamedTuple):
    """The result of scanning a file of frames.

    `damaged` are ranges of the file followed by a valid frame. `end` is where the last valid
    frame ends; `torn_bytes` counts the bytes after it that are neither a frame nor blank.
    """

    frames: list[Frame]
    damaged: list[tuple[int, int]]
    end: int
    torn_bytes: int


class _Header(NamedTuple):
    compression: int
    cipher: int
    flags: int
    key_number: int
    number: int
    plain_bytes: int
    offset: int
    stored_bytes: int
    salt: int


class FrameWriter:
    """Creates the frames of a block file, in order.

    Lives as long as the file is open for writing. Every writer has a fresh random salt, so the
    keys of its frames are its own, and a number used before a crash is never used again under the
    same key. One thread owns it.
    """

    def __init__(
        self,
        binding: Binding,
        salt: int,
        *,
        key: DataKey | None = None,
        compression: BlockCompression = BlockCompression.NONE,
        position: int = 0,
        number: int = 0,
        offset: int = 0,
    ) -> None:
        if position % ALIGNMENT:
            raise ValueError(f"frames lie at multiples of {ALIGNMENT}")
        self.position, self.number, self.offset = position, number, offset
        self._binding, self._salt, self._key = binding, salt, key
        self._cipher = FrameCipher(key, *binding, salt) if key else None
        self._shrinker = Shrinker(compression)

    def frames(self, plain: Data, *, chunk_bytes: int = CHUNK_BYTES) -> bytes:
        """Return the plain bytes as frames; the caller writes them at the previous `position`."""
        view = memoryview(plain)
        cuts = range(0, len(view), chunk_bytes)
        return b"".join([self.frame(view[at : at + chunk_bytes]) for at in cuts])

    def frame(self, plain: Data, *, last: bool = False) -> bytes:
        """Return one frame; the caller writes it at the previous `position`."""
        if len(plain) > CHUNK_BYTES_MAX or self.offset + len(plain) > BODY_BYTES_MAX:
            raise ValueError("too long for a frame or for a block")
        if self.number > NUMBER_MAX:
            raise ValueError("too many frames for a block")
        compression, stored = self._shrinker.shrink(plain)
        key = self._key
        header = _Header(
            compression,
            key.cipher if key else Cipher.NONE,
            LAST if last else 0,
            key.number if key else 0,
            self.number,
            len(plain),
            self.offset,
            len(stored) + (TAG_BYTES if key else 0),
            self._salt,
        )
        place = _PLACE.pack(*self._binding, self.position)
        head = _packed(header, place)
        if self._cipher is not None:
            stored = self._cipher.seal(self.number, stored, place + head)
        frame = _whole(head, stored, place)
        self.position += len(frame)
        self.offset += len(plain)
        self.number += 1
        return frame


class FrameReader:
    """Reads the frames of one block with the given data keys, by number. One thread owns it.

    With keys, an unencrypted frame is not valid: anyone can compute its checksums.
    """

    def __init__(self, binding: Binding, keys: Mapping[int, DataKey]) -> None:
        self._binding, self._keys = binding, keys
        self._restorer = Restorer()
        self._ciphers: dict[tuple[int, int], FrameCipher] = {}

    def read(self, data: Data, at: int, position: int) -> Frame:
        """Return the frame that begins at data[at] and was written at `position` of its file.

        Raises BadFrame if there is none, NotOpened if its key is wrong, and WrongKey if it names
        a key that was not given.
        """
        place = _PLACE.pack(*self._binding, position)
        head = bytes(data[at : at + HEADER_BYTES])
        header = _checked(head, place)
        length = _frame_bytes(header.stored_bytes)
        if at + length > len(data):
            raise BadFrame("the frame is cut off")
        padded = memoryview(data)[at + HEADER_BYTES : at + length - _HASH.size]
        (expected,) = _HASH.unpack_from(data, at + length - _HASH.size)
        if checksum(padded, checksum(head + place)) != expected:
            raise BadFrame("the frame does not hold what was written", length)
        plain = self._opened(header, padded[: header.stored_bytes], place + head, length)
        return Frame(
            header.number,
            position,
            position + length,
            header.offset,
            header.salt,
            bool(header.flags & LAST),
            plain,
        )

    def scan(self, data: Data, start: int = 0) -> Scan:
        """Return every valid frame from `start` on, in a file that begins at data[0].

        After damage it continues at the next valid header. A frame whose number does not rise is
        left over from an earlier writer, and counts as damage. Raises WrongKey if no frame opens.
        """
        data = data if isinstance(data, bytes | bytearray) else bytes(data)
        frames: list[Frame] = []
        damaged: list[tuple[int, int]] = []
        at = end = start
        not_opened = False
        while at < len(data):
            try:
                frame = self.read(data, at, at)
                if frames and frame.number <= frames[-1].number:
                    raise BadFrame("left over from an earlier writer", frame.end - at)
            except BadFrame as bad:
                not_opened |= isinstance(bad, NotOpened)
                at = at + bad.length if bad.length else self._next_header(data, at + ALIGNMENT)
                continue
            if frame.position > end:
                damaged.append((end, frame.position))
            frames.append(frame)
            at = end = frame.end
        if not_opened and not frames:
            raise WrongKey("no frame of the block opens with its data key")
        return Scan(frames, damaged, end, len(data[end:].rstrip(b"\0")))

    def _next_header(self, raw: bytes | bytearray, start: int) -> int:
        at = raw.find(MAGIC, start)
        while at >= 0:
            if at % ALIGNMENT == 0 and self._has_header(raw, at):
                return at
            at = raw.find(MAGIC, at + 1)
        return len(raw)

    def _has_header(self, raw: bytes | bytearray, at: int) -> bool:
        try:
            _checked(bytes(raw[at : at + HEADER_BYTES]), _PLACE.pack(*self._binding, at))
        except BadFrame:
            return False
        return True

    def _opened(self, header: _Header, stored: Data, bound: bytes, length: int) -> Data:
        try:
            if header.cipher != Cipher.NONE:
                stored = self._cipher_of(header).open(header.number, stored, bound)
            elif self._keys:
                raise BadFrame("the frame is not encrypted, and must be", length)
            return self._restorer.restore(header.compression, stored, header.plain_bytes)
        except NotAuthentic as error:
            raise NotOpened(str(error), length) from None
        except BadChunk as error:
            raise BadFrame(str(error), length) from None

    def _cipher_of(self, header: _Header) -> FrameCipher:
        key = self._keys.get(header.key_number)
        if key is None or key.cipher != header.cipher:
            raise WrongKey(f"the block is encrypted with data key {header.key_number}, not given")
        which = (header.key_number, header.salt)
        if which not in self._ciphers:
            if len(self._ciphers) >= CIPHERS_MAX:
                self._ciphers.pop(next(iter(self._ciphers)))
            self._ciphers[which] = FrameCipher(key, *self._binding, header.salt)
        return self._ciphers[which]


def assemble(frames: Sequence[Frame], plain_bytes: int) -> tuple[bytearray, list[tuple[int, int]]]:
    """Return the plain bytes of a block, zeros where frames are missing, and those ranges."""
    plain = bytearray(plain_bytes)
    missing: list[tuple[int, int]] = []
    at = 0
    for frame in sorted(frames, key=lambda frame: frame.offset):
        stop = frame.offset + len(frame.plain)
        if frame.offset < at or stop > plain_bytes:
            continue
        if frame.offset > at:
            missing.append((at, frame.offset))
        plain[frame.offset : stop] = frame.plain
        at = stop
    if at < plain_bytes:
        missing.append((at, plain_bytes))
    return plain, missing


# ------------------------------------------------------------------------ bytes


def _frame_bytes(stored_bytes: int) -> int:
    return FRAME_BYTES + stored_bytes + -stored_bytes % ALIGNMENT


def _packed(header: _Header, place: bytes) -> bytes:
    head = _HEADER.pack(MAGIC, VERSION, *header)
    return head + _HEADER_SUM.pack(checksum(head + place) & 0xFFFFFFFF)


def _whole(head: bytes, stored: Data, place: bytes) -> bytes:
    padded = bytes(stored) + bytes(-len(stored) % ALIGNMENT)
    return head + padded + _HASH.pack(checksum(padded, checksum(head + place)))


def _checked(head: bytes, place: bytes) -> _Header:
    if len(head) < HEADER_BYTES or not head.startswith(MAGIC):
        raise BadFrame("no frame begins here")
    (expected,) = _HEADER_SUM.unpack_from(head, _HEADER.size)
    if checksum(head[: _HEADER.size] + place) & 0xFFFFFFFF != expected:
        raise BadFrame("the frame's header does not hold what was written")
    _, version, *rest = _HEADER.unpack_from(head)
    header = _Header(*rest)
    tag = TAG_BYTES if header.cipher else 0
    if version != VERSION or header.flags & ~LAST or header.cipher > max(Cipher):
        raise BadFrame("the frame is of a form not known here")
    if header.plain_bytes > CHUNK_BYTES_MAX or header.offset + header.plain_bytes > BODY_BYTES_MAX:
        raise BadFrame("the frame claims more than a block can hold")
    if not tag <= header.stored_bytes <= header.plain_bytes + tag:
        raise BadFrame("the frame's lengths contradict each other")
    return header
