"""Record kinds that describe ranges of sequences; the files contain these numbers."""

from __future__ import annotations

from typing import Final

SKIP: Final = 2
REMOVE: Final = 3
FLOOR: Final = 4
RESERVE: Final = 5
MARK: Final = 6
