"""A set of sequences, stored as ranges: deleted, acknowledged or damaged sequences.

Ranges are ascending, disjoint and never adjacent, so equal sets have equal ranges. They lie in
chunks of two parallel arrays, found by bisection: a change moves the bytes of one chunk at most,
whatever the size of the set. A range costs 16 bytes; a run of a million sequences is one range.

Encoded form: the number of ranges, then for each range the distance from its lowest possible
first sequence (0 for the first range, the previous last + 2 for others) and its last minus its
first, all as in `varint.py`. The code that stores the bytes adds a checksum.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final

from penstock.records.varint import U64_MAX, put_uvarint, read_uvarint

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

CHUNK_RANGES_MAX: Final = 1024
RANGES_DECODED_MAX: Final = 1 << 24
"""Default maximum of ranges that `decode` accepts: 256 MiB of them."""
_RANGE_BYTES_MIN: Final = 2


class SequenceSet:
    """A set of integers from 0 to 2**64 - 1. Any other value raises ValueError."""

    __slots__ = ("_count", "_firsts", "_heads", "_lasts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[array[int]] = []
        self._lasts: list[array[int]] = []
        self._heads: list[int] = []
        self._count = 0
        for first, last in ranges:
            self.insert_range(first, last)

    # -- queries

    @property
    def count(self) -> int:
        """The number of sequences; `len` cannot return more than 2**63 - 1."""
        return self._count

    def __len__(self) -> int:
        return self._count

    def __bool__(self) -> bool:
        return self._count > 0

    def __contains__(self, seq: int) -> bool:
        chunk = bisect_right(self._heads, seq) - 1
        if chunk < 0:
            return False
        at = bisect_right(self._firsts[chunk], seq) - 1
        return seq <= self._lasts[chunk][at]

    @property
    def min(self) -> int | None:
        """The lowest member; None in an empty set."""
        return self._firsts[0][0] if self._firsts else None

    @property
    def max(self) -> int | None:
        """The highest member; None in an empty set."""
        return self._lasts[-1][-1] if self._lasts else None

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield first and last of every run, both inclusive, ascending. Do not change the set
        while iterating."""
        for firsts, lasts in zip(self._firsts, self._lasts, strict=True):
            yield from zip(firsts, lasts, strict=True)

    @property
    def num_ranges(self) -> int:
        return sum(map(len, self._firsts))

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges():
            yield from range(first, last + 1)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SequenceSet):
            return NotImplemented
        return self._count == other._count and list(self.ranges()) == list(other.ranges())

    def __repr__(self) -> str:
        return f"SequenceSet({list(self.ranges())})"

    # -- changes

    def insert(self, seq: int) -> bool:
        """Add one sequence; return whether it is new."""
        return self.insert_range(seq, seq) > 0

    def insert_range(self, first: int, last: int) -> int:
        """Add `first` to `last`; return how many are new."""
        _check(first, last)
        before = self._count
        chunk, at, low, high = self._take(max(first - 1, 0), last + 1)
        low, high = min(low, first), max(high, last)
        self._put(chunk, at, ((low, high),))
        return self._count - before

    def remove(self, seq: int) -> bool:
        """Remove one sequence; return whether it was a member."""
        return self.remove_range(seq, seq) > 0

    def remove_range(self, first: int, last: int) -> int:
        """Remove `first` to `last`; return how many of them were members."""
        _check(first, last)
        before = self._count
        chunk, at, low, high = self._take(first, last)
        left = ((low, first - 1),) if low < first else ()
        right = ((last + 1, high),) if high > last else ()
        self._put(chunk, at, left + right)
        return before - self._count

    def update(self, other: SequenceSet) -> None:
        """Add all members of another set."""
        for first, last in list(other.ranges()):
            self.insert_range(first, last)

    def union(self, other: SequenceSet) -> SequenceSet:
        """Return a new set with the members of both."""
        both = self.copy()
        both.update(other)
        return both

    def copy(self) -> SequenceSet:
        twin = SequenceSet()
        twin._firsts = [chunk[:] for chunk in self._firsts]
        twin._lasts = [chunk[:] for chunk in self._lasts]
        twin._heads = self._heads[:]
        twin._count = self._count
        return twin

    def _take(self, low: int, high: int) -> tuple[int, int, int, int]:
        """Remove all ranges that overlap `low` to `high`.

        Returns their position, and their first and last sequence: an empty span (U64_MAX, -1) if
        there were none. May leave the chunk at that position empty: the caller calls `_put` next.
        """
        if not self._heads:
            self._firsts.append(array("Q"))
            self._lasts.append(array("Q"))
            self._heads.append(low)
        begin = max(bisect_right(self._heads, low) - 1, 0)
        end = bisect_right(self._heads, high)
        place = bisect_left(self._lasts[begin], low)
        lowest, highest = U64_MAX, -1
        for chunk in range(begin, end):
            firsts, lasts = self._firsts[chunk], self._lasts[chunk]
            at = place if chunk == begin else 0
            stop = bisect_right(firsts, high, at)
            if at == stop:
                continue
            lowest, highest = min(lowest, firsts[at]), lasts[stop - 1]
            self._count -= sum(lasts[at:stop]) - sum(firsts[at:stop]) + stop - at
            del firsts[at:stop], lasts[at:stop]
        self._drop_empty(begin + 1, end)
        return begin, place, lowest, highest

    def _drop_empty(self, begin: int, end: int) -> None:
        """Drop empty chunks after a cut over several chunks: only the last can hold ranges."""
        if begin >= end:
            return
        if self._firsts[end - 1]:
            end -= 1
            self._heads[end] = self._firsts[end][0]
        del self._firsts[begin:end], self._lasts[begin:end], self._heads[begin:end]

    def _put(self, chunk: int, at: int, ranges: tuple[tuple[int, int], ...]) -> None:
        """Insert ranges that touch no other at the position that `_take` returned."""
        firsts, lasts = self._firsts[chunk], self._lasts[chunk]
        for first, last in reversed(ranges):
            firsts.insert(at, first)
            lasts.insert(at, last)
            self._count += last - first + 1
        if not firsts:
            del self._firsts[chunk], self._lasts[chunk], self._heads[chunk]
            return
        self._heads[chunk] = firsts[0]
        if len(firsts) > CHUNK_RANGES_MAX:
            half = len(firsts) // 2
            self._firsts.insert(chunk + 1, firsts[half:])
            self._lasts.insert(chunk + 1, lasts[half:])
            self._heads.insert(chunk + 1, firsts[half])
            del firsts[half:], lasts[half:]

    # -- bytes

    def encode(self) -> bytes:
        """Return the whole set as bytes; equal sets return equal bytes."""
        out = bytearray()
        put_uvarint(out, self.num_ranges)
        lowest = 0
        for first, last in self.ranges():
            put_uvarint(out, first - lowest)
            put_uvarint(out, last - first)
            lowest = last + 2
        return bytes(out)

    @classmethod
    def decode(cls, data: bytes, *, ranges_max: int = RANGES_DECODED_MAX) -> SequenceSet:
        """Return the set that `encode` encoded; raise ValueError for any other bytes.

        Needs at most eight times the memory of `data`, whatever its header claims.
        """
        left, at = read_uvarint(data, 0)
        if left > min(ranges_max, (len(data) - at) // _RANGE_BYTES_MIN):
            raise ValueError(f"{left} ranges are more than allowed or than there can be")
        decoded = cls()
        lowest = 0
        while left:
            firsts, lasts = array("Q"), array("Q")
            for _ in range(min(left, CHUNK_RANGES_MAX)):
                gap, at = read_uvarint(data, at)
                width, at = read_uvarint(data, at)
                first = lowest + gap
                last = first + width
                if last > U64_MAX:
                    raise ValueError(f"range before offset {at} goes beyond the last sequence")
                firsts.append(first)
                lasts.append(last)
                decoded._count += width + 1
                lowest = last + 2
            decoded._firsts.append(firsts)
            decoded._lasts.append(lasts)
            decoded._heads.append(firsts[0])
            left -= len(firsts)
        if at != len(data):
            raise ValueError(f"{len(data) - at} bytes behind the last range")
        return decoded


def _check(first: int, last: int) -> None:
    if not 0 <= first <= last <= U64_MAX:
        raise ValueError(f"{first} to {last} is no range of sequences")
