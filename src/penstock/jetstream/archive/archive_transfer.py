"""The interface between the server and a running snapshot or restore.

A transfer runs in bounded steps, so that the server can serve others in between. After a step it
wants the next one at once, when file work has run, when a message arrives, or at its deadline. The
server calls everything on one thread, except `Work.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.base.effects import Effect
    from penstock.store.contract import Work

TRANSFERS_MAX: Final = 16
"""Per account, at the same time."""


class TransferStep(NamedTuple):
    """The result of a step. With neither work nor `more`, the transfer waits."""

    effects: tuple[Effect, ...] = ()
    work: Work | None = None
    """Work to run on a disk thread; then the server calls `worked` and another step."""
    more: bool = False
    """Whether another step should follow once others had a turn."""


class Transfer(Protocol):
    """One archive, in one direction."""

    inlet: str
    """The subject to which the client sends."""
    watched: str
    """The subject whose subscribers matter to the transfer; "" if none."""
    is_over: bool
    problem: str
    """A problem to report to the operator; "" if there is none."""

    def received(self, reply: str, payload: bytes, now_ns: int) -> None:
        """Take a message sent to the inlet. The caller runs a step next."""

    def listening(self, is_there: bool) -> None:
        """Record whether the watched subject itself, not a wildcard, has a subscriber."""

    def step(self, now_ns: int) -> TransferStep:
        """Continue for a bounded time."""

    def worked(self, work: Work, failure: Exception | None) -> None:
        """Take back the work of the last step. The caller runs a step next."""

    def fail(self, why: str) -> None:
        """Record an exception: the next step reports it to the client and ends the transfer."""

    def next_deadline_ns(self) -> int | None:
        """Return when a step is due if nothing else happens."""

    def abandon(self) -> None:
        """Release everything without a reply: the server stops."""
