"""Permissions of the files that the server creates outside its store.

Log lines contain user names and subjects, so other users of the machine must not read them. The
umask may restrict a mode further. An existing file keeps its mode.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

LOG_FILE_MODE: Final = 0o640
PID_FILE_MODE: Final = 0o600
PORTS_FILE_MODE: Final = 0o640
"""The reference uses 0666, where only the umask protects the file."""


def opener(mode: int) -> Callable[[str, int], int]:
    """Return an `opener` for `open` that creates files with this mode."""
    return lambda path, flags: os.open(path, flags, mode)
