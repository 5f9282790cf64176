"""How long tests wait for what must come.

It costs nothing while everything works, for nobody waits longer than needed; so it is chosen for a
machine that has ten other things to do. What must *not* come is never waited for by the clock.
"""

from __future__ import annotations

from typing import Final

PATIENCE_SECONDS: Final = 90.0
