"""The end marker: records, outside the blocks, up to where a log was durable.

Marks in the log reveal that something before them is missing, but not that the end is missing: a
newest block that was cut off or lost looks like one that was never written. So sealing a block, and
closing the store, also record the durable end in a small file with two copies. The file is only a
safety net: a store works without it if it cannot be read or written, and its position is never
later than the true end.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.sequences import SEQ_MAX
from penstock.store.errors import CorruptRecord, NotFound, StoreError
from penstock.store.format.block_header import NUMBER_MAX
from penstock.store.io.slots import SlotFile, state_key

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk

END_FILE: Final = "end"
ROLE: Final = "end of log"
_VALUE: Final = struct.Struct("<QQQ")


class End(NamedTuple):
    """Everything before this place of this block was durable, and sequences up to `seq`."""

    block: int = 0
    place: int = 0
    seq: int = 0


class EndMark:
    """The file and its value. `damaged`: it cannot be used; the next `note` replaces it."""

    def __init__(self, disk: Disk, incarnation: int) -> None:
        self.found = End()
        self.damaged = False
        self._disk = disk
        self._key = state_key(ROLE, incarnation)
        self._slots: SlotFile | None = None
        self._failed = False
        try:
            self._slots, reading = SlotFile.open(
                disk, END_FILE, self._key, value_bytes_max=_VALUE.size
            )
        except NotFound:
            return
        except CorruptRecord:
            self.damaged = True
            return
        self.found, self.damaged = self._checked(reading.value)

    def _checked(self, value: bytes) -> tuple[End, bool]:
        """Return the value of the file, and whether that value is impossible."""
        if len(value) == _VALUE.size:
            end = End(*_VALUE.unpack(value))
            if end.block <= NUMBER_MAX and end.place <= NUMBER_MAX and end.seq <= SEQ_MAX:
                return end, False
        if self._slots is not None:
            self._slots.close()
            self._slots = None
        return End(), True

    def note(self, place: tuple[int, int], seq: int) -> None:
        """Record that everything up to here is durable. Blocks for a sync. After a failure the
        marker is no longer updated; the store is not affected."""
        end = End(*place, seq)
        if self._failed or end == self.found:
            return
        self.found, value = end, _VALUE.pack(*end)
        try:
            if self._slots is not None:
                self._slots.write(value)
                return
            if self.damaged:
                self._disk.unlink(END_FILE)
                self.damaged = False
            self._slots = SlotFile.create(
                self._disk, END_FILE, self._key, value, value_bytes_max=_VALUE.size
            )
        except StoreError:
            self._failed = True

    def close(self) -> None:
        if self._slots is not None:
            self._slots.close()
            self._slots = None
