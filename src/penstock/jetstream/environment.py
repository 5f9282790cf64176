"""What the machines of JetStream need from the world, handed in: chance, names, and who listens.

Nothing below the server draws random numbers or asks the router by itself; tests hand in their
own. All of it is called on the thread that owns the machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.short_hash import short_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.consumers.consumer_context import Outlet


@dataclass(frozen=True, slots=True)
class Environment:
    """The world as the machines of one account see it."""

    nuid: Callable[[], str]
    """A name nobody else has."""
    noise: Callable[[int], bytes]
    """As many random bytes."""
    seed: Callable[[], int]
    """A number that keys hash tables and identifies a stream's life."""
    has_interest: Callable[[str, str | None], bool]
    """Whether somebody subscribes to a subject, in a queue group or (None) at all."""
    server_name: str
    server_id: str = ""
    domain: str = ""
    account: str = "$G"
    outlet: Outlet | None = None
    """Where compiled code may put deliveries."""

    @property
    def account_hash(self) -> str:
        return short_hash(self.account)
