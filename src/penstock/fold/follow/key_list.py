"""An external sort of keys: sorted runs are written to disk once the in-memory list is full.

The caller adds keys in any order, also repeatedly, and iterates over them in ascending byte order,
each key once, as often as needed. `close` deletes the files. The module does not depend on buckets
or folds.
"""

from __future__ import annotations

import tempfile
from heapq import merge
from itertools import groupby
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path
    from typing import IO

KEYS_IN_MEMORY_MAX = 1_000_000


class KeyList:
    """Sorted keys. A key contains no line break, so each line of a run is one key."""

    def __init__(
        self, directory: Path | None = None, *, keys_in_memory_max: int = KEYS_IN_MEMORY_MAX
    ) -> None:
        self._directory = directory
        self._max = keys_in_memory_max
        self._keys: list[str] = []
        self._is_sorted = True
        self._runs: list[IO[str]] = []

    def add(self, keys: Iterable[str]) -> None:
        self._keys.extend(keys)
        self._is_sorted = False
        if len(self._keys) >= self._max:
            self._spill()

    def __iter__(self) -> Iterator[str]:
        """Yield the keys in ascending order without duplicates; one iteration at a time."""
        if not self._is_sorted:
            self._keys.sort()
            self._is_sorted = True
        runs = [_lines(run) for run in self._runs]
        return (key for key, _ in groupby(merge(self._keys, *runs)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for run in self._runs:
            run.close()
        self._runs.clear()
        self._keys.clear()

    def _spill(self) -> None:
        self._keys.sort()
        run = tempfile.TemporaryFile("w+", encoding="utf-8", dir=self._directory)  # noqa: SIM115
        self._runs.append(run)
        run.writelines(f"{key}\n" for key in self._keys)
        self._keys.clear()


def _lines(run: IO[str]) -> Iterator[str]:
    run.seek(0)
    return (line[:-1] for line in run)
