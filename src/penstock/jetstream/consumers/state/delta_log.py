"""Delta log: the changes between two checkpoints of a consumer, in a file of fixed size.

The file has two halves with the same contents, so that a single damaged page loses no change. It is
filled with zeros before use and does not grow in use, so an append is a plain overwrite. A frame
holds consecutive changes and is bound to consumer, incarnation and generation. It records up to
which change everything was durable when it was written, so that a reader can distinguish what a
crash may lose from what it may not. docs/formats/consumer.md has the bytes.

`read_log` is pure. `ConsumerLog` writes and never syncs: the caller runs a `ConsumerSync`, on any
thread.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.consumers.state.consumer_deltas import MalformedDelta, unpack
from penstock.store.io.slots import HASH_BYTES, PAGE_BYTES, keyed_hash

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jetstream.consumers.state.consumer_deltas import Change
    from penstock.store.io.disk import Disk, File

LOG_MAGIC: Final = b"PSTKCLOG"
LOG_VERSION: Final = 2
OLD_VERSION: Final = 1
"""Version without runs of messages; it is read but not continued."""
FRAME_MAGIC: Final = b"CFrm"
HALF_BYTES_MIN: Final = 16 * 1024
HALF_BYTES_MAX: Final = 4 * 1024 * 1024
_LOG_FIELDS: Final = struct.Struct("<8sHB5xQQ")
_FRAME_FIELDS: Final = struct.Struct("<4sIQQII8s")
LOG_HEADER_BYTES: Final = 64
FRAME_HEADER_BYTES: Final = _FRAME_FIELDS.size + HASH_BYTES
FRAME_ALIGN: Final = 8
COPIES: Final = 2


class DeltaFrame(NamedTuple):
    """Consecutive changes, numbered from `first`."""

    offset: int
    end: int
    first: int
    durable_seq: int
    """All changes up to this one were durable when the frame was written."""
    changes: list[Change]
    copies: int
    """How many of its two copies are valid."""

    @property
    def last(self) -> int:
        return self.first + len(self.changes) - 1


class LogReading(NamedTuple):
    """The content of a log file. `frames` are consecutive from the start; `frames_from` are valid
    frames after the first position where neither copy is valid."""

    generation: int
    half_bytes: int
    version: int
    frames: list[DeltaFrame]
    frames_from: list[DeltaFrame]
    end: int
    """Where the next frame goes."""
    headers: int
    """How many of the two headers are valid."""
    shortened: bool
    """The file is shorter than at its creation."""
    unused_bytes: int
    """Bytes after `end`, of both copies, up to the last byte that is not zero."""


def frame_key(key: bytes, generation: int) -> bytes:
    """Return the frame key of one generation; frames of an earlier generation in the same file are
    invalid."""
    return keyed_hash(key, b"generation", struct.pack("<Q", generation))


def half_bytes_for(wanted: int) -> int:
    """Return the size of a half with room for `wanted` bytes, within the bounds."""
    size = HALF_BYTES_MIN
    while size < min(wanted, HALF_BYTES_MAX):
        size *= 2
    return size


def read_log(key: bytes, image: bytes) -> LogReading | None:
    """Return everything valid in the image of a log file; None if neither header is valid."""
    first = _read_header(key, image, 0, 0)
    # The first header, or else the file's size, gives the start of the second half.
    places = {first[1] if first else 0, len(image) // COPIES}
    valid = [first, *(_read_header(key, image, place, 1) for place in sorted(places))]
    # If two headers differ, one is stale: its page was not written, or not yet.
    header = max((found for found in valid if found), default=None)
    if header is None:
        return None
    generation, half_bytes, version = header
    halves = (image[:half_bytes], image[half_bytes : COPIES * half_bytes])
    reader = _Reader(frame_key(key, generation), halves)
    frames = list(reader.run(LOG_HEADER_BYTES))
    end = frames[-1].end if frames else LOG_HEADER_BYTES
    return LogReading(
        generation=generation,
        half_bytes=half_bytes,
        version=version,
        frames=frames,
        frames_from=list(reader.frames_from(end)),
        end=end,
        headers=min(COPIES, valid.count(header)),
        shortened=len(image) < COPIES * half_bytes,
        unused_bytes=sum(len(half[end:].rstrip(b"\0")) for half in halves),
    )


def _read_header(key: bytes, image: bytes, at: int, copy: int) -> tuple[int, int, int] | None:
    """Return generation, size of a half and version."""
    fields = image[at : at + _LOG_FIELDS.size]
    end = at + _LOG_FIELDS.size
    if len(image) < end + HASH_BYTES or keyed_hash(key, fields) != image[end : end + HASH_BYTES]:
        return None
    magic, version, which, generation, half_bytes = _LOG_FIELDS.unpack(fields)
    if (magic, which) != (LOG_MAGIC, copy) or version not in (OLD_VERSION, LOG_VERSION):
        return None
    if not HALF_BYTES_MIN <= half_bytes <= HALF_BYTES_MAX or half_bytes % PAGE_BYTES:
        return None
    return generation, half_bytes, version


class _Reader:
    """Finds frames in two halves that should be equal."""

    def __init__(self, key: bytes, halves: tuple[bytes, bytes]) -> None:
        self._key = key
        self._halves = halves

    def run(self, at: int) -> Iterator[DeltaFrame]:
        """Yield consecutive frames from `at`, up to where neither copy is valid."""
        while frame := self._frame(at):
            yield frame
            at = frame.end

    def frames_from(self, at: int) -> Iterator[DeltaFrame]:
        """Yield all valid frames from `at` on, wherever they start."""
        while (at := self._next_magic(at)) >= 0:
            frame = self._frame(at)
            if frame:
                yield frame
            at = frame.end if frame else at + FRAME_ALIGN

    def _next_magic(self, at: int) -> int:
        found = [half.find(FRAME_MAGIC, at) for half in self._halves]
        places = [-(-place // FRAME_ALIGN) * FRAME_ALIGN for place in found if place >= 0]
        return min(places, default=-1)

    def _frame(self, at: int) -> DeltaFrame | None:
        frames = [frame for half in self._halves if (frame := _parse(self._key, half, at))]
        return frames[0]._replace(copies=len(frames)) if frames else None


def _parse(key: bytes, half: bytes, at: int) -> DeltaFrame | None:
    head_end = at + FRAME_HEADER_BYTES
    fields = half[at : at + _FRAME_FIELDS.size]
    if not fields.startswith(FRAME_MAGIC) or len(half) < head_end:
        return None
    if keyed_hash(key, fields) != half[head_end - HASH_BYTES : head_end]:
        return None
    _, length, first, durable_seq, count, _, body_hash = _FRAME_FIELDS.unpack(fields)
    body = half[head_end : head_end + length]
    if len(body) != length or keyed_hash(key, struct.pack("<Q", first), body) != body_hash:
        return None
    try:
        changes = unpack(body)
    except MalformedDelta:
        return None
    if len(changes) != count or max(first + count, durable_seq) > SEQ_MAX:
        return None
    end = head_end + _aligned(length)
    return DeltaFrame(at, end, first, durable_seq, changes, 1)


def _aligned(n: int) -> int:
    return -(-n // FRAME_ALIGN) * FRAME_ALIGN


class ConsumerLog:
    """A log open for writing; it tracks where the next frame goes."""

    __slots__ = ("_at", "_disk", "_key", "file", "generation", "half_bytes")

    def __init__(
        self, disk: Disk, file: File, key: bytes, generation: int, half_bytes: int, at: int
    ) -> None:
        """Continue an existing log at `at`; `fresh` creates a new one."""
        self.file = file
        self.generation = generation
        self.half_bytes = half_bytes
        self._at = at
        self._disk = disk
        self._key = frame_key(key, generation)

    @classmethod
    def fresh(
        cls, disk: Disk, file: File, key: bytes, generation: int, half_bytes: int
    ) -> ConsumerLog:
        """Overwrite the file with an empty log. The caller syncs it before use."""
        # A longer file keeps its length, or its old end would look like the end of this log.
        half_bytes = max(half_bytes, min(HALF_BYTES_MAX, half_bytes_for(disk.size(file) // COPIES)))
        for copy in range(COPIES):
            fields = _LOG_FIELDS.pack(LOG_MAGIC, LOG_VERSION, copy, generation, half_bytes)
            header = fields + keyed_hash(key, fields)
            disk.pwrite(file, header.ljust(half_bytes, b"\0"), copy * half_bytes)
        return cls(disk, file, key, generation, half_bytes, LOG_HEADER_BYTES)

    @property
    def used(self) -> int:
        """Bytes of each half in use."""
        return self._at

    def has_room(self, body_bytes: int) -> bool:
        """Return whether a frame with this many bytes of changes fits."""
        return self._at + FRAME_HEADER_BYTES + _aligned(body_bytes) <= self.half_bytes

    def append(self, body: bytes | bytearray, first: int, count: int, durable_seq: int) -> None:
        """Write a frame, twice. After an error the caller may retry with the same or more
        changes."""
        body_hash = keyed_hash(self._key, struct.pack("<Q", first), bytes(body))
        fields = _FRAME_FIELDS.pack(FRAME_MAGIC, len(body), first, durable_seq, count, 0, body_hash)
        frame = fields + keyed_hash(self._key, fields) + body
        frame = frame.ljust(_aligned(len(frame)), b"\0")
        for copy in range(COPIES):
            self._disk.pwrite(self.file, frame, copy * self.half_bytes + self._at)
        self._at += len(frame)


class ConsumerSync:
    """The sync of one turn: `run` it on any thread, then pass it to `synced`."""

    __slots__ = ("_disk", "files", "generation", "prepared", "upto")

    def __init__(
        self,
        disk: Disk,
        files: tuple[File, ...],
        upto: int,
        generation: int,
        prepared: ConsumerLog | None,
    ) -> None:
        self._disk = disk
        self.files = files
        self.upto = upto
        self.generation = generation
        self.prepared = prepared

    def run(self) -> None:
        """Sync the files."""
        for file in self.files:
            self._disk.fdatasync(file)
