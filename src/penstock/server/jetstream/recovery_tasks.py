"""Recovers accounts that a running server begins to serve, in slices between client turns.

Each account is a generator that opens its streams and then begins to serve them; it must not raise.
Accounts take turns, and a turn of the event loop ends after RECOVERY_BUDGET_NS. The runtime calls
`begin` for an account, and `close` when the server stops: accounts that are left stay unopened.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.base.slices import Sliced

RECOVERY_BUDGET_NS: Final = 3_000_000
"""How long one turn of the loop recovers accounts; a single slice may take longer."""


class AccountRecoveries:
    """The accounts that are being recovered."""

    def __init__(self, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        self._waiting: deque[Sliced[None]] = deque()
        self.slices = 0
        """Number of slices run so far."""

    def begin(self, steps: Sliced[None]) -> None:
        """Recover an account from the next turn on."""
        self._waiting.append(steps)
        if len(self._waiting) == 1:
            self._soon(self._run)

    def _run(self) -> None:
        until_ns = time.monotonic_ns() + RECOVERY_BUDGET_NS
        while self._waiting:
            self.slices += 1
            steps = self._waiting.popleft()
            with contextlib.suppress(StopIteration):
                next(steps)
                self._waiting.append(steps)
            if time.monotonic_ns() >= until_ns:
                break
        if self._waiting:
            self._soon(self._run)

    def close(self) -> None:
        """Stop; the remaining files stay as they are."""
        for steps in self._waiting:
            steps.close()
        self._waiting.clear()
