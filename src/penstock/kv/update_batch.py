"""Batches of updates, stored as the columns received from the server, with objects on demand.

`Updates` is a sequence of `KvUpdate` over a batch of records. The first access to an element
creates all objects, once. A caller that works on the columns (`batch`, `skipped`, `ops`) creates
none. `JoinedUpdates` concatenates several sequences without copying. Both are immutable.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import TYPE_CHECKING, Final, overload

from penstock.base.units import SECOND_NS
from penstock.kv.kv_types import KvUpdate, Op

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.bulk.record_batch import Batch

_OPS: Final = {int(op): op for op in Op}


class Updates(Sequence[KvUpdate]):
    """The updates of one record batch.

    `skipped` is the length of the subject before each key, `ops` has one byte per record, and
    `reasons` maps the index of a record to the server's reason for the removal.
    """

    __slots__ = ("_made", "batch", "ops", "reasons", "skipped")

    def __init__(
        self, batch: Batch, skipped: int, ops: bytes, reasons: Mapping[int, str] | None = None
    ) -> None:
        if len(ops) != batch.count:
            raise ValueError("operations are not as many as the records")
        self.batch = batch
        self.skipped = skipped
        self.ops = ops
        self.reasons = reasons or {}
        self._made: list[KvUpdate] | None = None

    @property
    def last(self) -> int:
        """The highest revision: records of a stream arrive in order."""
        return self.batch.last

    @property
    def pending(self) -> int:
        """Number of records the server had still to send after these."""
        return self.batch.pending

    def __len__(self) -> int:
        return self.batch.count

    @overload
    def __getitem__(self, at: int) -> KvUpdate: ...
    @overload
    def __getitem__(self, at: slice) -> list[KvUpdate]: ...
    def __getitem__(self, at: int | slice) -> KvUpdate | list[KvUpdate]:
        return self.made()[at]

    def __iter__(self) -> Iterator[KvUpdate]:
        return iter(self.made())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self.made() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def made(self) -> list[KvUpdate]:
        """Return the updates as objects."""
        if self._made is None:
            skipped, reasons = self.skipped, self.reasons
            self._made = [
                KvUpdate(
                    _OPS[op], subject[skipped:], value, seq, time_ns / SECOND_NS, reasons.get(at)
                )
                for at, ((subject, seq, time_ns, _, value), op) in enumerate(
                    zip(self.batch.rows(), self.ops, strict=True)
                )
            ]
        return self._made


class JoinedUpdates(Sequence[KvUpdate]):
    """Several sequences of updates, concatenated."""

    __slots__ = ("_count", "pieces")

    def __init__(self, pieces: Sequence[Sequence[KvUpdate]]) -> None:
        self.pieces = tuple(pieces)
        self._count = sum(map(len, self.pieces))

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, at: int) -> KvUpdate: ...
    @overload
    def __getitem__(self, at: slice) -> list[KvUpdate]: ...
    def __getitem__(self, at: int | slice) -> KvUpdate | list[KvUpdate]:
        return list(self)[at]

    def __iter__(self) -> Iterator[KvUpdate]:
        return chain.from_iterable(self.pieces)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def pieces_of(updates: Sequence[KvUpdate]) -> tuple[Sequence[KvUpdate], ...]:
    """Return the parts of joined updates; any other sequence is its own single part."""
    return updates.pieces if isinstance(updates, JoinedUpdates) else (updates,)


def columns_of(updates: Sequence[KvUpdate]) -> list[Updates] | None:
    """Return the parts if all of them are columns, else None."""
    pieces = pieces_of(updates)
    columns = [piece for piece in pieces if isinstance(piece, Updates)]
    return columns if columns and len(columns) == len(pieces) else None
