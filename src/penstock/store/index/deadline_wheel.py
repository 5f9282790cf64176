"""The deadlines of messages: an unbounded wheel of one-second slots.

A slot holds the sequences whose deadline lies in its second, ascending, in two arrays; a heap
holds the starts of the slots in use. A slot with `SLOT_ENTRIES_MAX` messages is split into slots of
a thousandth of its width, down to a nanosecond, so no call sorts or moves more than that, however
many messages fall due in the same second. A slot whose time has come is sorted by deadline and
becomes the front, from which deadlines expire to the nanosecond. Adding, removing and expiring cost
at most a bisection and a share of one sort; only the first message of a slot pays for the heap.
Memory: 12 bytes a message, about 400 a slot in use, 60 a message while its slot is the front.

Sequences arrive ascending, as appends assign them; another order is correct but moves the bytes of
a slot. Time is an argument and may stand still or go back: no deadline expires twice.

Encoded form, all numbers as in `varint.py`: how many slots, then for each its number minus the
previous slot's (from -1) minus 1, how many messages minus 1, and for each message its sequence
minus the previous one's (from -1) minus 1 and its nanoseconds into the second. The code that
stores the bytes adds a checksum.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import Final

from penstock.records.varint import U64_MAX, put_uvarint, read_uvarint

SLOT_NS: Final = 1_000_000_000
DEADLINE_NS_MAX: Final = 2**63 - 1
ENTRIES_DECODED_MAX: Final = 1 << 26
"""Default maximum of messages that `decode` accepts: 768 MiB of them."""
SLOT_ENTRIES_MAX: Final = 4096
"""Maximum messages of a slot wider than a nanosecond; one more splits it."""
PARTS: Final = 1000
"""Number of slots that a slot is split into."""
_REMOVED: Final = 2**32 - 1  # not a valid offset: larger than the nanoseconds of a slot
_IDLE_SLOTS_MAX: Final = 64  # empty slots, or used front entries, tolerated before a clean-up
_SEQ_BITS: Final = 64


class _Slot:
    """The messages due in one time span: sequences ascending, and nanoseconds into the span."""

    __slots__ = ("live", "offsets", "parts", "seqs", "start_ns", "width_ns")

    def __init__(self, start_ns: int, width_ns: int) -> None:
        self.start_ns = start_ns
        self.width_ns = width_ns
        self.seqs: array[int] = array("Q")
        self.offsets: array[int] = array("I")
        self.live = 0
        self.parts: dict[int, _Slot] | None = None
        """Narrower slots by their starts, if this slot was split; then it holds no messages."""

    @property
    def is_full(self) -> bool:
        return len(self.seqs) >= SLOT_ENTRIES_MAX and self.width_ns > 1

    def part_start(self, deadline_ns: int) -> int:
        """Return the start of the part that contains a deadline."""
        return deadline_ns - deadline_ns % (self.width_ns // PARTS)

    def add(self, seq: int, offset: int) -> bool:
        """Add a message; return False if it is already there."""
        seqs = self.seqs
        at = len(seqs) if not seqs or seq > seqs[-1] else bisect_left(seqs, seq)
        if at < len(seqs) and seqs[at] == seq:
            if self.offsets[at] != _REMOVED:
                return False
            self.offsets[at] = offset
        else:
            seqs.insert(at, seq)
            self.offsets.insert(at, offset)
        self.live += 1
        return True

    def remove(self, seq: int, offset: int) -> bool:
        """Remove a message; return whether it was there."""
        at = bisect_left(self.seqs, seq)
        if at == len(self.seqs) or self.seqs[at] != seq or self.offsets[at] != offset:
            return False
        self.offsets[at] = _REMOVED
        self.live -= 1
        if 2 * self.live < len(self.seqs):
            entries = self.entries()
            self.seqs = array("Q", [seq for seq, _ in entries])
            self.offsets = array("I", [offset for _, offset in entries])
        return True

    def entries(self) -> list[tuple[int, int]]:
        """Return sequence and offset of all messages, by sequence."""
        pairs = zip(self.seqs, self.offsets, strict=True)
        return [pair for pair in pairs if pair[1] != _REMOVED]


class DeadlineWheel:
    """Deadlines of messages. A sequence has one at a time: remove it before adding another."""

    __slots__ = (
        "_count",
        "_front",
        "_front_at",
        "_front_end_ns",
        "_front_removed",
        "_heap",
        "_idle",
        "_seconds",
    )

    def __init__(self) -> None:
        self._seconds: dict[int, _Slot] = {}  # by their starts
        self._heap: list[int] = []  # starts of slots that are not split; some may be empty
        self._idle = 0  # slots that are empty but still in the heap
        self._front: list[int] = []  # deadline << 64 | sequence, ascending
        self._front_at = 0
        self._front_removed: set[int] = set()
        self._front_end_ns = 0  # the front holds every deadline before this time
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, seq: int, deadline_ns: int) -> None:
        """Add a deadline for `seq`. Raises ValueError if out of range or already added."""
        if not (0 <= seq <= U64_MAX and 0 <= deadline_ns <= DEADLINE_NS_MAX):
            raise ValueError(f"sequence {seq} or deadline {deadline_ns} is out of range")
        if deadline_ns < self._front_end_ns:
            added = self._add_in_front(deadline_ns << _SEQ_BITS | seq)
        else:
            slot = self._slot(deadline_ns)
            added = slot.add(seq, deadline_ns - slot.start_ns)
        if not added:
            raise ValueError(f"sequence {seq} is due then already")
        self._count += 1

    def remove(self, seq: int, deadline_ns: int) -> bool:
        """Remove a deadline; return whether it was there."""
        if deadline_ns < self._front_end_ns:
            removed = self._remove_in_front(deadline_ns << _SEQ_BITS | seq)
        else:
            slot = self._find(deadline_ns)
            removed = slot is not None and slot.remove(seq, deadline_ns - slot.start_ns)
            if removed and slot is not None and not slot.live:
                self._idle += 1
                self._drop_idle()
        self._count -= removed
        return removed

    def expire(self, now_ns: int, *, at_most: int | None = None) -> list[int]:
        """Remove and return sequences due at `now_ns`, the earliest first, at most `at_most`."""
        due: list[int] = []
        wanted = self._count if at_most is None else at_most
        bound = (now_ns + 1) << _SEQ_BITS
        while len(due) < wanted:
            self._skip_removed()
            if self._front_at == len(self._front):
                if not self._advance(now_ns):
                    break
            elif self._front[self._front_at] < bound:
                due.append(self._front[self._front_at] & U64_MAX)
                self._front_at += 1
            else:
                break
        self._count -= len(due)
        self._trim_front()
        return due

    def next_deadline_ns(self) -> int | None:
        """Return the next deadline, or up to a second before it; None if there is none."""
        self._skip_removed()
        if self._front_at < len(self._front):
            return self._front[self._front_at] >> _SEQ_BITS
        slot = self._first_slot()
        return None if slot is None else slot.start_ns

    # -- slots

    def _find(self, deadline_ns: int) -> _Slot | None:
        """Return the slot that holds a deadline, or None."""
        slot = self._seconds.get(deadline_ns - deadline_ns % SLOT_NS)
        while slot is not None and slot.parts is not None:
            slot = slot.parts.get(slot.part_start(deadline_ns))
        return slot

    def _slot(self, deadline_ns: int) -> _Slot:
        """Return the slot to add a deadline to; create or split it if needed."""
        start_ns, width_ns, slots = deadline_ns - deadline_ns % SLOT_NS, SLOT_NS, self._seconds
        while True:
            slot = slots.get(start_ns)
            if slot is None:
                slot = slots[start_ns] = _Slot(start_ns, width_ns)
                heappush(self._heap, start_ns)
                return slot
            if slot.parts is None:
                if not slot.is_full:
                    self._idle -= not slot.live
                    return slot
                self._split(slot)
            assert slot.parts is not None
            slots = slot.parts
            start_ns, width_ns = slot.part_start(deadline_ns), slot.width_ns // PARTS

    def _split(self, slot: _Slot) -> None:
        """Move the messages of a slot into narrower slots."""
        self._idle += bool(slot.live)  # its start stays in the heap
        parts = slot.parts = {}
        width_ns = slot.width_ns // PARTS
        for seq, offset in slot.entries():
            start_ns = slot.start_ns + offset - offset % width_ns
            part = parts.get(start_ns)
            if part is None:
                part = parts[start_ns] = _Slot(start_ns, width_ns)
                heappush(self._heap, start_ns)
            part.add(seq, offset % width_ns)
        slot.seqs, slot.offsets, slot.live = array("Q"), array("I"), 0

    def _first_slot(self) -> _Slot | None:
        """Return the earliest slot that is not empty."""
        while self._heap:
            slot = self._find(self._heap[0])
            if slot is not None and slot.live:
                return slot
            self._forget(heappop(self._heap))
        return None

    def _forget(self, start_ns: int) -> None:
        """Remove an empty slot whose start has left the heap, and parents left without parts."""
        self._idle -= 1
        way: list[tuple[dict[int, _Slot], _Slot]] = []
        slots: dict[int, _Slot] | None = self._seconds
        at_ns = start_ns - start_ns % SLOT_NS
        while slots is not None and (slot := slots.get(at_ns)) is not None:
            way.append((slots, slot))
            slots = slot.parts
            if slots is not None:
                at_ns = slot.part_start(start_ns)
        for slots, slot in reversed(way):
            if slot.live or slot.parts:
                return
            del slots[slot.start_ns]

    def _leaves(self) -> list[_Slot]:
        """Return every slot that holds messages."""
        found, todo = [], list(self._seconds.values())
        while todo:
            slot = todo.pop()
            if slot.parts is not None:
                todo += slot.parts.values()
            elif slot.live:
                found.append(slot)
        return found

    def _drop_idle(self) -> None:
        """Drop empty slots if deadlines removed before their time have left too many."""
        if self._idle > _IDLE_SLOTS_MAX and 2 * self._idle > len(self._heap):
            kept = {slot.start_ns for slot in self._leaves()}
            for start_ns in set(self._heap) - kept:
                self._forget(start_ns)
            self._heap = list(kept)
            heapify(self._heap)
            self._idle = 0

    # -- the front

    def _advance(self, now_ns: int) -> bool:
        """Make the next slot the front, if its time has come."""
        slot = self._first_slot()
        if slot is None or slot.start_ns > now_ns:
            return False
        base = slot.start_ns
        self._front = sorted((base + at) << _SEQ_BITS | seq for seq, at in slot.entries())
        self._front_at = 0
        self._front_end_ns = base + slot.width_ns
        slot.seqs, slot.offsets, slot.live = array("Q"), array("I"), 0
        self._forget(heappop(self._heap))
        self._idle += 1
        return True

    def _add_in_front(self, key: int) -> bool:
        if key in self._front_removed:
            self._front_removed.remove(key)
            return True
        at = bisect_left(self._front, key, self._front_at)
        if at < len(self._front) and self._front[at] == key:
            return False
        insort(self._front, key, self._front_at)
        return True

    def _remove_in_front(self, key: int) -> bool:
        at = bisect_left(self._front, key, self._front_at)
        if at == len(self._front) or self._front[at] != key or key in self._front_removed:
            return False
        self._front_removed.add(key)
        return True

    def _skip_removed(self) -> None:
        while self._front_removed and self._front_at < len(self._front):
            if self._front[self._front_at] not in self._front_removed:
                return
            self._front_removed.remove(self._front[self._front_at])
            self._front_at += 1

    def _trim_front(self) -> None:
        if self._front_at > _IDLE_SLOTS_MAX and 2 * self._front_at > len(self._front):
            del self._front[: self._front_at]
            self._front_at = 0

    # -- bytes

    def encode(self) -> bytes:
        """Return all deadlines as bytes; equal wheels return equal bytes."""
        slots: dict[int, list[tuple[int, int]]] = {}
        for slot in self._leaves():
            number, base = divmod(slot.start_ns, SLOT_NS)
            entries = slots.setdefault(number, [])
            entries += [(seq, base + offset) for seq, offset in slot.entries()]
        for key in self._front[self._front_at :]:
            if key not in self._front_removed:
                number, offset = divmod(key >> _SEQ_BITS, SLOT_NS)
                slots.setdefault(number, []).append((key & U64_MAX, offset))
        out = bytearray()
        put_uvarint(out, len(slots))
        previous = -1
        for number in sorted(slots):
            put_uvarint(out, number - previous - 1)
            put_uvarint(out, len(slots[number]) - 1)
            previous = number
            before = -1
            for seq, offset in sorted(slots[number]):
                put_uvarint(out, seq - before - 1)
                put_uvarint(out, offset)
                before = seq
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes, *, entries_max: int = ENTRIES_DECODED_MAX) -> DeadlineWheel:
        """Return the wheel that `encode` encoded; raise ValueError for any other bytes.

        Memory is bounded by the length of `data`, whatever its header claims.
        """
        wheel = cls()
        slots, at = read_uvarint(data, 0)
        number = -1
        for _ in range(slots):
            distance, at = read_uvarint(data, at)
            entries, at = read_uvarint(data, at)
            number += distance + 1
            if number * SLOT_NS > DEADLINE_NS_MAX or wheel._count + entries >= entries_max:
                raise ValueError(f"slot before offset {at} is too late or has too many messages")
            at = wheel._decode_slot(number, entries + 1, data, at)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes behind the last slot")
        return wheel

    def _decode_slot(self, number: int, entries: int, data: bytes, at: int) -> int:
        seq = -1
        for _ in range(entries):
            distance, at = read_uvarint(data, at)
            offset, at = read_uvarint(data, at)
            seq += distance + 1
            if offset >= SLOT_NS:
                raise ValueError(f"deadline before offset {at} is not in its slot")
            self.add(seq, number * SLOT_NS + offset)
        return at
