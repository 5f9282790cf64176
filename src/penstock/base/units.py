"""Units of time that every layer uses. All times in this code base are integer nanoseconds."""

from typing import Final

MILLISECOND_NS: Final = 1_000_000
SECOND_NS: Final = 1_000_000_000
