"""Effects: what a state machine requests from the server, as values.

Streams and consumers decide and return effects; the server performs them in order, those that need
durability after the sync that they wait for. Tests compare the lists. Nothing here has behaviour.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import msgspec


class Send(NamedTuple):
    """Publish a message of the server in the machine's account."""

    subject: str
    payload: bytes = b""
    header: bytes = b""
    reply: str = ""


class Deliver(NamedTuple):
    """Deliver a stored message to subscribers of `to`; they see it under its own `subject`."""

    to: str
    subject: str
    reply: str
    header: bytes
    payload: bytes


class Advise(NamedTuple):
    """Publish an advisory under `$JS.EVENT`; encoded only if `subject` has subscribers.

    The server fills in what the machine cannot know: the event's id, its time and the domain.
    """

    subject: str
    event: msgspec.Struct


class Fetch(NamedTuple):
    """Load a block that is not in memory, then wake the machine. `cold` names the block."""

    cold: object


class Begin(NamedTuple):
    """Start a long transfer, after the effects before it were sent."""

    transfer: object


Effect: TypeAlias = Send | Deliver | Advise | Fetch | Begin
