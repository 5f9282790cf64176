"""What nobody waits for is written all the same, and soon: acknowledgements without a reply above
all, and blocks that are half dead are written anew.

Invariant: from the first change on no more than UPKEEP_S pass until the writing begins. What
changes meanwhile is written with it, and never puts it off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

UPKEEP_S: Final = 0.25
"""How long a change that nobody waits for may stay in memory."""


class Tidied(Protocol):
    """What has something to write now and then."""

    def compact(self) -> None:
        """Space of removed messages is won back."""

    def flush_consumers(self) -> None:
        """Consumers' states are written."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Maintenance:
    """The hosts that changed since the last time."""

    def __init__(self, call_later: Callable[[float, Callable[[], None]], Timer]) -> None:
        self._call_later = call_later
        self._timer: Timer | None = None
        self._untidy: dict[Tidied, None] = {}

    def want(self, host: Tidied) -> None:
        """Something happened to it that should be written some time soon."""
        if not self._untidy:
            self._timer = self._call_later(UPKEEP_S, self._due)
        self._untidy[host] = None

    def _due(self) -> None:
        untidy, self._untidy = self._untidy, {}
        for host in untidy:
            host.compact()
            host.flush_consumers()

    def stop(self) -> None:
        """Others write what is left."""
        if self._timer is not None:
            self._timer.cancel()
