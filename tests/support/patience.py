"""How long tests wait for what must come.

It costs nothing while everything works, for no wait is longer than needed; so it is chosen for a
machine that has ten other things to do. What must *not* come is never waited for by the clock.
"""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 90.0
PAUSE_SECONDS_MIN: Final = 0.002
PAUSE_SECONDS_MAX: Final = 0.1


def pause_after(waited_seconds: float) -> float:
    """How long to wait until one looks again.

    It grows with the wait, by a tenth of it: a test that waits for seconds, and asks a server
    each time, would otherwise keep a whole machine busy with that.
    """
    return min(max(waited_seconds / 10, PAUSE_SECONDS_MIN), PAUSE_SECONDS_MAX)
