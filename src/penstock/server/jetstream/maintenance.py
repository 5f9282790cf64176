"""Background flush: persists unconfirmed acks and compacts half-empty blocks within UPKEEP_S.

Invariant: writing begins at most UPKEEP_S after the first change. Later changes join that write and
never postpone it. A stream driver calls `want` whenever its host changed; the runtime calls `stop`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

UPKEEP_S: Final = 0.25
"""How long a change that no client waits for may stay only in memory."""


class Tidied(Protocol):
    """An object with something to write from time to time."""

    def compact(self) -> None:
        """Reclaim the space of removed messages."""

    def flush_consumers(self) -> None:
        """Write the consumers' states."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Maintenance:
    """The hosts that changed since the last flush."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._call_later = call_later
        self._timer: Timer | None = None
        self._untidy: dict[Tidied, None] = {}

    def want(self, host: Tidied) -> None:
        """Flush this host within UPKEEP_S."""
        if not self._untidy:
            self._timer = self._call_later(UPKEEP_S, self._due)
        self._untidy[host] = None

    def _due(self) -> None:
        untidy, self._untidy = self._untidy, {}
        for host in untidy:
            host.compact()
            host.flush_consumers()

    def stop(self) -> None:
        """Cancel the flush: closing the streams writes the rest."""
        if self._timer is not None:
            self._timer.cancel()
