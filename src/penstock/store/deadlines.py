"""When messages fall due: a wheel of one-second slots, without end.

A slot holds the sequences whose deadline lies in its second, ascending, in two arrays; a heap
holds the numbers of the slots in use. The slot whose time has come is sorted by deadline once and
becomes the front, from which deadlines are taken to the nanosecond. Adding, removing and expiring
cost no more than a bisection and a share of one sort; only the first message of a slot pays for
the heap. 12 bytes a message, about 400 a slot in use, 60 a message while its slot is the front.

Sequences arrive ascending, as appends make them; another order is right but moves a slot's bytes.
Time is an argument and may stand still or go back: nothing falls due twice.

Encoded form, all numbers as in `varint.py`: how many slots, then for each its number minus the
previous slot's (from -1) minus 1, how many messages minus 1, and for each message its sequence
minus the previous one's (from -1) minus 1 and its nanoseconds into the second. Who stores the
bytes adds a checksum.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import Final

from penstock.store.varint import U64_MAX, put_uvarint, read_uvarint

SLOT_NS: Final = 1_000_000_000
DEADLINE_NS_MAX: Final = 2**63 - 1
ENTRIES_DECODED_MAX: Final = 1 << 26
"""Messages `decode` takes unless told otherwise: 768 MiB of them."""
_REMOVED: Final = 2**32 - 1  # an offset no nanosecond of a slot has
_IDLE_SLOTS_MAX: Final = 64  # empty slots, or spent front entries, not worth a clean-up
_SEQ_BITS: Final = 64


class _Slot:
    """The messages due in one second: sequences ascending, and nanoseconds into the second."""

    __slots__ = ("live", "offsets", "seqs")

    def __init__(self) -> None:
        self.seqs: array[int] = array("Q")
        self.offsets: array[int] = array("I")
        self.live = 0

    def add(self, seq: int, offset: int) -> bool:
        """Whether it was not there."""
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
        """Whether it was there."""
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
        """Sequence and offset of all that is due, by sequence."""
        pairs = zip(self.seqs, self.offsets, strict=True)
        return [pair for pair in pairs if pair[1] != _REMOVED]


class DeadlineWheel:
    """Deadlines of messages. A sequence has one at a time: remove it before adding another."""

    __slots__ = (
        "_count",
        "_front",
        "_front_at",
        "_front_gone",
        "_front_slot",
        "_heap",
        "_idle",
        "_slots",
    )

    def __init__(self) -> None:
        self._slots: dict[int, _Slot] = {}
        self._heap: list[int] = []
        self._idle = 0  # slots that are empty, but still in the heap
        self._front: list[int] = []  # deadline << 64 | sequence, ascending
        self._front_at = 0
        self._front_gone: set[int] = set()
        self._front_slot = -1  # the front has everything of this slot and of all before
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, seq: int, deadline_ns: int) -> None:
        """From now on `seq` falls due at `deadline_ns`. ValueError: out of range, or seen there."""
        if not (0 <= seq <= U64_MAX and 0 <= deadline_ns <= DEADLINE_NS_MAX):
            raise ValueError(f"sequence {seq} or deadline {deadline_ns} is out of range")
        number, offset = divmod(deadline_ns, SLOT_NS)
        if number <= self._front_slot:
            added = self._add_in_front(deadline_ns << _SEQ_BITS | seq)
        else:
            added = self._slot(number).add(seq, offset)
        if not added:
            raise ValueError(f"sequence {seq} is due in this second already")
        self._count += 1

    def remove(self, seq: int, deadline_ns: int) -> bool:
        """Forgets a deadline; whether it was known."""
        number, offset = divmod(deadline_ns, SLOT_NS)
        if number <= self._front_slot:
            removed = self._remove_in_front(deadline_ns << _SEQ_BITS | seq)
        else:
            slot = self._slots.get(number)
            removed = slot is not None and slot.remove(seq, offset)
            if removed and slot is not None and not slot.live:
                self._idle += 1
                self._drop_idle()
        self._count -= removed
        return removed

    def expire(self, now_ns: int, *, at_most: int | None = None) -> list[int]:
        """Takes out what is due at `now_ns`, the earliest first, and at most so many."""
        due: list[int] = []
        wanted = self._count if at_most is None else at_most
        bound = (now_ns + 1) << _SEQ_BITS
        while len(due) < wanted:
            self._skip_gone()
            if self._front_at == len(self._front):
                if not self._advance(now_ns // SLOT_NS):
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
        """The next deadline, or up to a second before it; None if there is none."""
        self._skip_gone()
        if self._front_at < len(self._front):
            return self._front[self._front_at] >> _SEQ_BITS
        number = self._first_slot()
        return None if number is None else number * SLOT_NS

    # -- slots

    def _slot(self, number: int) -> _Slot:
        """The slot of this number, about to be filled."""
        slot = self._slots.get(number)
        if slot is None:
            slot = self._slots[number] = _Slot()
            heappush(self._heap, number)
        elif not slot.live:
            self._idle -= 1
        return slot

    def _first_slot(self) -> int | None:
        """The number of the earliest slot that is not empty."""
        while self._heap and not self._slots[self._heap[0]].live:
            del self._slots[heappop(self._heap)]
            self._idle -= 1
        return self._heap[0] if self._heap else None

    def _drop_idle(self) -> None:
        """Keeps deadlines that are forgotten before their time from piling up as empty slots."""
        if self._idle > _IDLE_SLOTS_MAX and 2 * self._idle > len(self._slots):
            self._slots = {number: slot for number, slot in self._slots.items() if slot.live}
            self._heap = list(self._slots)
            heapify(self._heap)
            self._idle = 0

    # -- the front

    def _advance(self, now_slot: int) -> bool:
        """Makes the next slot the front, if its time has come."""
        number = self._first_slot()
        if number is None or number > now_slot:
            return False
        slot = self._slots.pop(heappop(self._heap))
        base = number * SLOT_NS
        self._front = sorted((base + at) << _SEQ_BITS | seq for seq, at in slot.entries())
        self._front_at = 0
        self._front_slot = number
        return True

    def _add_in_front(self, key: int) -> bool:
        if key in self._front_gone:
            self._front_gone.remove(key)
            return True
        at = bisect_left(self._front, key, self._front_at)
        if at < len(self._front) and self._front[at] == key:
            return False
        insort(self._front, key, self._front_at)
        return True

    def _remove_in_front(self, key: int) -> bool:
        at = bisect_left(self._front, key, self._front_at)
        if at == len(self._front) or self._front[at] != key or key in self._front_gone:
            return False
        self._front_gone.add(key)
        return True

    def _skip_gone(self) -> None:
        while self._front_gone and self._front_at < len(self._front):
            if self._front[self._front_at] not in self._front_gone:
                return
            self._front_gone.remove(self._front[self._front_at])
            self._front_at += 1

    def _trim_front(self) -> None:
        if self._front_at > _IDLE_SLOTS_MAX and 2 * self._front_at > len(self._front):
            del self._front[: self._front_at]
            self._front_at = 0

    # -- bytes

    def encode(self) -> bytes:
        """All deadlines; equal wheels give equal bytes."""
        slots = {number: slot.entries() for number, slot in self._slots.items() if slot.live}
        for key in self._front[self._front_at :]:
            if key not in self._front_gone:
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
        """The wheel that `encode` made of it; ValueError for any other bytes.

        Memory is bounded by the length of `data`, whatever that claims to hold.
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
