"""The keys a bucket holds now, in order, however many: sorted runs on disk once memory is full.

Filled with keys in any order, also twice; read in ascending order of their bytes, each once, as
often as wanted. Its files go when it is closed. Nothing here knows buckets or folds.
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
    """Sorted keys. A key holds no line break, so a line is a key."""

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
        """Ascending, without repetition; one reader at a time."""
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
