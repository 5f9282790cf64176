"""The environment of the JetStream machines: random values, unique names, subscription interest.

Code below the server layer never draws random numbers or queries the router itself; the server
passes these functions in, and tests pass their own. All of them are called on the thread that owns
the machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.base.short_hash import short_hash

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.jetstream.consumers.consumer_context import Outlet
    from penstock.jetstream.host.replicator import Replicate


@dataclass(frozen=True, slots=True)
class Environment:
    """What the server provides to the machines of one account."""

    nuid: Callable[[], str]
    """Return a unique name."""
    noise: Callable[[int], bytes]
    """Return this many random bytes."""
    seed: Callable[[], int]
    """Return a random number, used to key hash tables and to identify an incarnation of a
    stream."""
    has_interest: Callable[[str, str | None], bool]
    """Return whether a subject has a subscriber: in this queue group, or (None) any subscriber."""
    server_name: str
    server_id: str = ""
    domain: str = ""
    account: str = "$G"
    replicate: Replicate | None = None
    """Return what decides the entries of a new stream; None: entries are applied at once."""
    outlet: Outlet | None = None
    """Where compiled code may write deliveries."""

    @property
    def account_hash(self) -> str:
        return short_hash(self.account)
