"""Turns of an encrypted journal: the head stays plain, the records become frames after it.

A head holds numbers and lengths only. The frames are those of encrypted blocks
(docs/formats/sealed.md): bound to incarnation, segment and position, under a key that only one
writer of one segment has. The offset in a frame is the place its bytes would have in a plain turn,
so records have the same places, and the same checksums, in both forms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.records.journal_codec import HEAD_BYTES, PAGE_BYTES
from penstock.store.format.block_frames import (
    ALIGNMENT,
    FRAME_BYTES,
    MAGIC,
    BadFrame,
    FrameReader,
    FrameWriter,
)
from penstock.store.format.compression import CHUNK_BYTES
from penstock.store.format.encryption import TAG_BYTES

if TYPE_CHECKING:
    from penstock.store.format.compression import Data


def whole_pages(n: int) -> int:
    """Return `n` rounded up to whole pages."""
    return -(-n // PAGE_BYTES) * PAGE_BYTES


def stored_bytes(plain_bytes: int) -> int:
    """Return the bytes in the file of an encrypted turn with so many plain bytes."""
    chunks, rest = divmod(plain_bytes - HEAD_BYTES, CHUNK_BYTES)
    return HEAD_BYTES + chunks * _frame_bytes(CHUNK_BYTES) + (_frame_bytes(rest) if rest else 0)


def plain_bytes_max(room: int) -> int:
    """Return the plain bytes of the largest turn that surely fits encrypted into `room` bytes."""
    chunks = -(-room // CHUNK_BYTES)
    return room - chunks * (FRAME_BYTES + TAG_BYTES + ALIGNMENT)


def _frame_bytes(plain: int) -> int:
    stored = plain + TAG_BYTES
    return FRAME_BYTES + stored + -stored % ALIGNMENT


def encrypt_turn(writer: FrameWriter, turn: memoryview, plain_bytes: int, place: int) -> bytes:
    """Return the turn as it is stored, in whole pages."""
    writer.position = writer.offset = place + HEAD_BYTES
    stored = bytes(turn[:HEAD_BYTES]) + writer.frames(turn[HEAD_BYTES:plain_bytes])
    assert len(stored) == stored_bytes(plain_bytes)
    return stored.ljust(whole_pages(len(stored)), b"\0")


def decrypt_turn(
    reader: FrameReader, data: Data, base: int, start: int, stop: int, plain_bytes: int
) -> tuple[bytearray, bool]:
    """Return the plain bytes that belong at place `start`, and whether all of them were there.

    Reads the frames in the places `start` to `stop` of a segment; data[0] is at place `base`.
    Bytes without a valid frame are zeros, which no record matches.
    """
    plain = bytearray(plain_bytes)
    raw = bytes(data[start - base : stop - base])
    missing = plain_bytes - HEAD_BYTES
    at = _next_frame(raw, 0)
    while at < len(raw):
        try:
            frame = reader.read(raw, at, start + at)
        except BadFrame as bad:
            at = _next_frame(raw, at + max(bad.length, ALIGNMENT))
            continue
        to = frame.offset - start
        if to >= 0 and to + len(frame.plain) <= plain_bytes:
            plain[to : to + len(frame.plain)] = frame.plain
            missing -= len(frame.plain)
        at = _next_frame(raw, frame.end - start)
    plain[:HEAD_BYTES] = raw[:HEAD_BYTES]
    return plain, missing == 0


def _next_frame(raw: bytes, at: int) -> int:
    at = raw.find(MAGIC, at)
    while at >= 0 and at % ALIGNMENT:
        at = raw.find(MAGIC, at + 1)
    return at if at >= 0 else len(raw)
