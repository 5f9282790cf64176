"""Sets of stream sequences as runs, and the check that no message is in two of them.

A task reports which messages its rows became; in a write where ids are unique, each message belongs
to one row. Publishes of one connection are stored mostly in order, so the sequences of a task are
few long runs. Pure.
"""

from __future__ import annotations

import zlib
from array import array
from typing import TYPE_CHECKING, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Runs as `SequenceRuns.packed` returns them.
PackedRuns: TypeAlias = bytes
COMPRESSION: Final = 1


class SequenceRuns:
    """Runs (first, last) in any order; the same sequence may be added twice."""

    def __init__(self) -> None:
        self._firsts = array("q")
        self._lasts = array("q")

    def __len__(self) -> int:
        return len(self._firsts)

    def add(self, first: int, last: int) -> None:
        if self._lasts and self._lasts[-1] + 1 == first:
            self._lasts[-1] = last
        else:
            self._firsts.append(first)
            self._lasts.append(last)

    def extend(self, runs: Iterable[tuple[int, int]]) -> None:
        for first, last in runs:
            self.add(first, last)

    def packed(self) -> PackedRuns:
        """Return the runs as compressed bytes: distance to the run before, length, ..."""
        numbers, before = array("q"), 0
        for first, last in zip(self._firsts, self._lasts, strict=True):
            numbers.append(first - before)
            numbers.append(last - first)
            before = last
        return zlib.compress(numbers.tobytes(), COMPRESSION)

    def unpack(self, data: PackedRuns) -> None:
        """Add the runs that `packed` returned."""
        numbers, before = array("q"), 0
        numbers.frombytes(zlib.decompress(data))
        for at in range(0, len(numbers), 2):
            first = before + numbers[at]
            before = first + numbers[at + 1]
            self.add(first, before)

    def shared(self) -> int | None:
        """Return a sequence that was added twice; None if there is none."""
        if len(self) < 2:
            return None
        table = pa.table({"first": pa.array(self._firsts), "last": pa.array(self._lasts)})
        table = table.sort_by("first").combine_chunks()
        firsts, lasts = table["first"].chunk(0), table["last"].chunk(0)
        overlaps = pc.less_equal(firsts[1:], lasts[:-1])
        at = pc.index(overlaps, True).as_py()
        return None if at < 0 else int(firsts[at + 1].as_py())
