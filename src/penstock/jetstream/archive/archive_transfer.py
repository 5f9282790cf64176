"""Archives on their way to or from a client: what the edge and such a machine say to each other.

A transfer runs in steps, each bounded, so that others are served in between. After a step it wants
to be called again at once, or when some file work has run, or when a message for it comes, or its
deadline. All of it happens on one thread but for `Work.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from penstock.base.effects import Effect
    from penstock.store.contract import Work

TRANSFERS_MAX: Final = 16
"""Of one account at the same time."""


class TransferStep(NamedTuple):
    """What a step led to. With neither work nor more to do the transfer waits."""

    effects: tuple[Effect, ...] = ()
    work: Work | None = None
    """To be run on a thread; then `worked`, and another step."""
    more: bool = False
    """Another step is wanted, after others had a turn."""


class Transfer(Protocol):
    """One archive, one way."""

    inlet: str
    """What the other side sends to."""
    watched: str
    """Whose interest in it matters; "" if nobody's."""
    is_over: bool
    problem: str
    """What whoever runs the server should know about it; "" if nothing."""

    def received(self, reply: str, payload: bytes, now_ns: int) -> None:
        """Something was sent to the inlet. A step is due."""

    def listening(self, is_there: bool) -> None:
        """Somebody subscribed to exactly what is watched, or nobody does any more."""

    def step(self, now_ns: int) -> TransferStep:
        """Goes on for a bounded time."""

    def worked(self, work: Work, failure: Exception | None) -> None:
        """The work of the last step has run. A step is due."""

    def fail(self, why: str) -> None:
        """Something raised: the next step says so to the other side, and ends."""

    def next_deadline_ns(self) -> int | None:
        """When a step is due if nothing else happens."""

    def abandon(self) -> None:
        """The server stops: let go of everything, without a word."""
