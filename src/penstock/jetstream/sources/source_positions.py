"""How far the sources of a stream have been copied, kept beside its messages.

The copies say it themselves, in their headers. But limits may have taken the last copy of a source
out, and looking for it takes as long as the stream is; so what is known is written down now and
then, with the last sequence it speaks of: only what is stored behind that must be looked through.
Invariant: nothing is written down that is not durable in the stream. A file that speaks of more
than the stream has, because a power cut took it, is worth nothing and is replaced at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from penstock.jetstream.streams.source_progress import SourceRef  # noqa: TC001 - msgspec reads the annotation
from penstock.store.errors import CorruptRecord, NotFound, StoreError
from penstock.store.io.slots import SlotFile, state_key

if TYPE_CHECKING:
    from penstock.jetstream.streams.stream import Stream
    from penstock.store.io.disk import Disk

FILE_NAME: Final = "sources"
BYTES_MAX: Final = 1 << 24
KEEP_EVERY_NS: Final = 5_000_000_000
"""Between two writes, in the time of the stream's messages."""


class Kept(msgspec.Struct, frozen=True, array_like=True):
    """What the file holds."""

    at_seq: int
    sources: list[SourceRef]
    version: int = 1


class KeepPositions:
    """Writes what was known when it was made."""

    __slots__ = ("_positions", "_value")

    def __init__(self, positions: Positions, value: bytes) -> None:
        self._positions = positions
        self._value = value

    def run(self) -> None:
        self._positions.write(self._value)


class Positions:
    """The file of one stream; it is made when there is something to write."""

    def __init__(self, disk: Disk, incarnation: int) -> None:
        self._disk = disk
        self._key = state_key("sources", incarnation)
        self._slots: SlotFile | None = None
        self._kept_seq = 0
        self._kept_ns = 0
        self._is_given_up = False

    def recall(self, stream: Stream) -> None:
        """Tells a stream that has yet to recover what was written down of its sources."""
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
        stream.recall_sources({ref.index_name: ref for ref in kept.sources}, kept.at_seq)

    def settle(self, stream: Stream) -> None:
        """The stream has recovered: a file that speaks of more than it has must not be believed."""
        if self._kept_seq > stream.last_seq:
            self.write(self._value(stream))

    def pending_sync(self, stream: Stream) -> KeepPositions | None:
        """What to run once everything stored so far is durable; None if it can wait."""
        if stream.last_seq == self._kept_seq or not stream.known_sources:
            return None
        if stream.last_ts_ns - self._kept_ns < KEEP_EVERY_NS or self._is_given_up:
            return None
        return KeepPositions(self, self._value(stream))

    def synced(self, work: KeepPositions, failure: Exception | None) -> None:
        """The work has run, or what came before it did not."""

    def keep_now(self, stream: Stream) -> None:
        """Everything the stream has is durable: writes down how far its sources are."""
        if stream.known_sources and self._kept_seq != stream.last_seq:
            self.write(self._value(stream))

    def _value(self, stream: Stream) -> bytes:
        self._kept_seq, self._kept_ns = stream.last_seq, stream.last_ts_ns
        kept = Kept(stream.last_seq, list(stream.known_sources.values()))
        return msgspec.json.encode(kept)

    def write(self, value: bytes) -> None:
        """Blocks for a sync. What cannot be written is found in the messages, if more slowly."""
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
