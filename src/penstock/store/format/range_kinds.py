"""Kinds of records that speak of ranges of sequences, by the numbers the files have."""

from __future__ import annotations

from typing import Final

SKIP: Final = 2
REMOVE: Final = 3
FLOOR: Final = 4
RESERVE: Final = 5
MARK: Final = 6
