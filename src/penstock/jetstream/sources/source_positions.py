"""Source positions: a file that records how far each source of a stream has been copied.

The headers of the sourced messages contain the positions. But limits may have removed the last
message of a source, and a search costs time proportional to the stream's length. So the positions
are written from time to time, with the stream sequence they cover; recovery scans only messages
after that sequence. Invariant: the file never covers a message that is not durable in the stream.
If the file covers more than the stream has, because a power cut lost messages, it is ignored and
rewritten at once. The caller runs `KeepPositions` only after the stream's sync.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.jetstream.streams.source_progress import SourceRef  # noqa: TC001 - msgspec needs it
from penstock.store.errors import CorruptRecord, NotFound, StoreError
from penstock.store.io.slots import SlotFile, state_key

if TYPE_CHECKING:
    from penstock.jetstream.streams.stream import Stream
    from penstock.store.io.disk import Disk

FILE_NAME: Final = "sources"
BYTES_MAX: Final = 1 << 24
KEEP_EVERY_NS: Final = 5_000_000_000
"""Minimum time between two writes, measured in message timestamps."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """The content of the file."""

    at_seq: int
    sources: list[SourceRef]
    version: int = 1


class KeepPositions:
    """Disk job that writes the positions captured at construction."""

    __slots__ = ("_positions", "_value")

    def __init__(self, positions: Positions, value: bytes) -> None:
        self._positions = positions
        self._value = value

    def run(self) -> None:
        self._positions.write(self._value)


class Positions:
    """The positions file of one stream; created on the first write."""

    def __init__(self, disk: Disk, incarnation: int) -> None:
        self._disk = disk
        self._key = state_key("sources", incarnation)
        self._slots: SlotFile | None = None
        self._kept_seq = 0
        self._kept_ns = 0
        self._is_given_up = False

    def load_into(self, stream: Stream) -> None:
        """Pass the stored positions to a stream that has not recovered yet."""
        try:
            self._slots, reading = SlotFile.open(
                self._disk, FILE_NAME, self._key, value_bytes_max=BYTES_MAX
            )
            kept = msgspec.json.decode(reading.value, type=Kept)
        except NotFound:
            return
        except (CorruptRecord, msgspec.MsgspecError):
            self.close()
            self._disk.unlink(FILE_NAME)
            return
        self._kept_seq = kept.at_seq
        stream.set_source_positions({ref.index_name: ref for ref in kept.sources}, kept.at_seq)

    def trim_to(self, stream: Stream) -> None:
        """After recovery: rewrite a file that covers more than the stream has."""
        if self._kept_seq > stream.last_seq:
            self.write(self._value(stream))

    def pending_sync(self, stream: Stream) -> KeepPositions | None:
        """Return the job to run once everything stored so far is durable; None if nothing is
        due."""
        if stream.last_seq == self._kept_seq or not stream.known_sources:
            return None
        if stream.last_ts_ns - self._kept_ns < KEEP_EVERY_NS or self._is_given_up:
            return None
        return KeepPositions(self, self._value(stream))

    def synced(self, work: KeepPositions, failure: Exception | None) -> None:
        """The job has run, or the sync before it failed. Nothing to do."""

    def keep_now(self, stream: Stream) -> None:
        """Write the positions now. The caller guarantees that the whole stream is durable."""
        if stream.known_sources and self._kept_seq != stream.last_seq:
            self.write(self._value(stream))

    def _value(self, stream: Stream) -> bytes:
        self._kept_seq, self._kept_ns = stream.last_seq, stream.last_ts_ns
        kept = Kept(stream.last_seq, list(stream.known_sources.values()))
        return msgspec.json.encode(kept)

    def write(self, value: bytes) -> None:
        """Write the file; blocks for a sync. After a failure recovery falls back to scanning the
        messages."""
        if len(value) > BYTES_MAX:
            self._is_given_up = True
            return
        try:
            if self._slots is None:
                self._slots = SlotFile.create(
                    self._disk, FILE_NAME, self._key, value, value_bytes_max=BYTES_MAX
                )
            else:
                self._slots.write(value)
        except StoreError:
            self._is_given_up = True

    def close(self) -> None:
        if self._slots is not None:
            self._slots.close()
            self._slots = None
