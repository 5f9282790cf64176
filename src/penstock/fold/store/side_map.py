"""The side space of a fold in memory: an ordered map of bytes, for one writer and several readers.

Keys are sorted on demand, by merging new keys into those already sorted.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.fold.store.extensions import SideRows


class SideMap:
    """An ordered map of side rows."""

    def __init__(self) -> None:
        self._rows: dict[bytes, bytes] = {}
        self._ordered: list[bytes] = []
        self._is_ordered = True
        self._lock = Lock()

    def change(self, rows: SideRows, *, cleared: bytes = b"") -> None:
        """Remove rows with the prefix `cleared`, then write `rows`; None removes a row."""
        if not rows and not cleared:
            return
        with self._lock:
            if cleared:
                self._rows = {k: v for k, v in self._rows.items() if not k.startswith(cleared)}
                self._is_ordered = False
            for key, value in rows.items():
                if value is None:
                    self._is_ordered = self._rows.pop(key, None) is None and self._is_ordered
                else:
                    self._is_ordered = key in self._rows and self._is_ordered
                    self._rows[key] = value

    def clear(self) -> None:
        with self._lock:
            self._rows, self._ordered, self._is_ordered = {}, [], True

    def page(self, prefix: bytes, after: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        with self._lock:
            if not self._is_ordered:
                self._order()
            keys, rows = self._ordered, self._rows
            at = max(bisect_left(keys, prefix), bisect_right(keys, after))
            return [(key, rows[key]) for key in keys[at : at + limit] if key.startswith(prefix)]

    def _order(self) -> None:
        before = [key for key in self._ordered if key in self._rows]
        known = set(before)
        # Two ascending runs: sorting them is one merge.
        self._ordered = before + sorted(key for key in self._rows if key not in known)
        self._ordered.sort()
        self._is_ordered = True
