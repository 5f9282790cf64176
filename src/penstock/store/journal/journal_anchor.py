"""The anchor: the oldest segment that is needed and the newest that was used, in two slots.

Segments below the oldest are free, whatever their files hold. That the newest is known reveals its
loss: the segments alone look the same without it. The anchor is written when a segment is begun,
after its first turn is durable and before that turn counts, and when segments are freed, before
their files are used again.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.store.errors import CorruptRecord, NotFound
from penstock.store.io.slots import SlotFile, state_key

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk

ANCHOR_FILE: Final = "anchor"
ROLE: Final = "journal anchor"
_VALUE: Final = struct.Struct("<QQQ")


class AnchorValue(NamedTuple):
    """`tail`: the oldest segment that is needed. `newest`: the last that has durable turns.
    `turn`: a turn that was durable: it cannot be torn, and numbering continues after it."""

    tail: int = 1
    newest: int = 0
    turn: int = 0


class JournalAnchor:
    """The file and its value. `is_missing` and `is_damaged` are about opening it."""

    def __init__(self, disk: Disk, incarnation: int) -> None:
        self.value = AnchorValue()
        self.is_missing = self.is_damaged = False
        self._disk = disk
        self._key = state_key(ROLE, incarnation)
        self._slots: SlotFile | None = None
        try:
            self._slots, reading = SlotFile.open(
                disk, ANCHOR_FILE, self._key, value_bytes_max=_VALUE.size
            )
        except NotFound:
            self.is_missing = True
        except CorruptRecord:
            self.is_damaged = True
        else:
            self.value = AnchorValue(*_VALUE.unpack(reading.value.ljust(_VALUE.size, b"\0")))

    def create(self, value: AnchorValue) -> None:
        """Create the file, or replace one that is unreadable."""
        if self.is_damaged:
            self._disk.unlink(ANCHOR_FILE)
        self._slots = SlotFile.create(
            self._disk, ANCHOR_FILE, self._key, _VALUE.pack(*value), value_bytes_max=_VALUE.size
        )
        self.value = value

    def note(self, value: AnchorValue) -> None:
        """Record a value, durably. A new tail is written to both slots: were one damaged, an older
        tail would make segments that are free look missing."""
        assert self._slots is not None
        if value == self.value:
            return
        for _ in range(1 if value.tail == self.value.tail else 2):
            self._slots.write(_VALUE.pack(*value))
        self.value = value

    def close(self) -> None:
        if self._slots is not None:
            self._slots.close()
            self._slots = None
