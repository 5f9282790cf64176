"""All that a state machine may ask of the edge, as values.

Streams and consumers decide; they return these, and the server carries them out in order, the
durable ones after the sync they wait for. A test asserts on the list. Nothing here does anything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias

if TYPE_CHECKING:
    import msgspec


class Send(NamedTuple):
    """A message of the server's own, published in the machine's account."""

    subject: str
    payload: bytes = b""
    header: bytes = b""
    reply: str = ""


class Deliver(NamedTuple):
    """A stored message for whoever listens on `to`; receivers see it under its own `subject`."""

    to: str
    subject: str
    reply: str
    header: bytes
    payload: bytes


class Advise(NamedTuple):
    """An event under `$JS.EVENT`; made into bytes only if somebody listens on `subject`.

    The edge fills in what the machine cannot know: the event's id, its time and the domain.
    """

    subject: str
    event: msgspec.Struct


class Fetch(NamedTuple):
    """A block is not in memory: the machine wants to be woken when it is. `cold` names it."""

    cold: object


class Begin(NamedTuple):
    """Something that takes long may begin: what was to leave before it has left."""

    transfer: object


Effect: TypeAlias = Send | Deliver | Advise | Fetch | Begin
