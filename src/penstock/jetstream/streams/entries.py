"""Entries and answers: the decisions of a stream, as values.

`Stream.plan` creates them; `Stream.apply` applies entries. An entry holds everything that applying
it needs, including its time, so that it can be stored, sent to another server and applied there
with the same result. `entry_codec` defines its bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

import msgspec

from penstock.api.stream_config import StreamConfig  # noqa: TC001 - msgspec reads the annotation
from penstock.store.contract import NOTHING_REMOVED, Range

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.api.refusals import ApiError
    from penstock.base.effects import Effect, Send
    from penstock.store.contract import Cold, Removed

ROLLUP_SUBJECT: Final = "sub"
ROLLUP_ALL: Final = "all"


class FastMark(msgspec.Struct, frozen=True, gc=False):
    """Position of a message in a fast batch."""

    id: str
    seq: int
    commit: bool
    gap_ok: bool
    flow: int


class Special(msgspec.Struct, frozen=True, gc=False):
    """Properties that only some messages have."""

    ttl_ns: int = 0
    msg_id: bytes = b""
    rollup: str = ""
    """Which older messages are removed: ROLLUP_SUBJECT, ROLLUP_ALL, or none."""
    purged: str = ""
    """Another subject whose messages are removed: that of a finished schedule."""
    skip: bool = False
    """No consumer is interested: the message uses a sequence and is not stored."""
    value: str = ""
    """The counter total to report in the publish ack."""
    fast: FastMark | None = None
    origin_seq: int = 0
    """For a mirror: the sequence the message must get; sequences before it stay empty."""


class Publish(msgspec.Struct, frozen=True, gc=False):
    """A message to store, with its header in stored form."""

    ts_ns: int
    subject: str
    header: bytes
    payload: bytes
    reply: str = ""
    special: Special | None = None


class BatchEntry(msgspec.Struct, frozen=True):
    """Messages stored together or not at all; `count` is the number its publisher counts.

    Messages that need only an append are packed (`store.index.message_pack`) and precede the items.
    """

    ts_ns: int
    id: str
    items: tuple[Publish, ...]
    count: int
    reply: str = ""
    packed: bytes = b""


class Purge(msgspec.Struct, frozen=True):
    """One slice of a purge, as in `Store.purge_slice`; the empty subject means every subject.

    The first slice contains the request. Later slices also have a `bound`; `keep`, `bound` and
    `start` then hold the progress of the purge.
    """

    ts_ns: int
    subject: str = ""
    before_seq: int = 0
    keep: int = 0
    bound: int = 0
    start: int = 0

    @property
    def is_of_all(self) -> bool:
        """Return whether the purge removes everything; the stream then reports a first sequence
        even if it was empty."""
        return self.subject in ("", ">") and not self.keep and self.before_seq != 1


class Remove(msgspec.Struct, frozen=True, tag="rm", array_like=True):
    """Remove messages by sequence; sequences that are already removed are ignored."""

    ts_ns: int
    seqs: tuple[int, ...]
    erase: bool = False


class Expire(msgspec.Struct, frozen=True, tag="age", array_like=True):
    """Remove the messages that are due at `ts_ns`."""

    ts_ns: int


class Trim(msgspec.Struct, frozen=True, tag="trim", array_like=True):
    """Remove one slice of what exceeds the limits, as in `Store.trim`."""

    ts_ns: int


class Skip(msgspec.Struct, frozen=True, tag="skip", array_like=True):
    """Sequences that the origin no longer has."""

    ts_ns: int
    seqs: Range


class Update(msgspec.Struct, frozen=True, tag="cfg", array_like=True):
    """A new configuration, already checked against the one it replaces."""

    ts_ns: int
    cfg: StreamConfig


Entry: TypeAlias = Publish | BatchEntry | Purge | Remove | Expire | Trim | Skip | Update


class Answer(NamedTuple):
    """No change: the message was rejected, is a duplicate, or waits for the rest of its batch."""

    effects: tuple[Effect, ...] = ()
    refusal: ApiError | None = None
    is_duplicate: bool = False
    at_fault: bytes = b""
    """Header of the rejected message, if it is another message of an atomic batch."""


class NotLoaded(NamedTuple):
    """A block is not in memory: the caller loads it and repeats the same call.

    Until then the caller must not plan later messages, or messages would be reordered.
    """

    cold: Cold


class NotApplied(NamedTuple):
    """The plan depends on entries in flight: the caller repeats the same call when one of them was
    applied. Until then it must not plan later messages, or messages would be reordered.
    """


class Applied(NamedTuple):
    """The result of an entry. The server sends `effects` once the entry is durable."""

    effects: tuple[Send, ...] = ()
    stored: tuple[tuple[int, str], ...] = ()
    """Sequence and subject of each stored message."""
    removed: Removed = NOTHING_REMOVED
    """What the entry removed, by limits, rollup, purge or age."""
    by_limit: Removed = NOTHING_REMOVED
    """For a single stored message: the part of `removed` that limits removed."""
    rolled_up: Removed = NOTHING_REMOVED
    """The part of `removed` that a rollup removed."""
    is_bulk: bool = False
    """Whether more messages were stored, before those in `stored`."""
    rest: tuple[Purge, ...] = ()
    """The remaining slices, to be applied later so that other work is served in between."""


class Due(NamedTuple):
    """What is due: entries to apply in this order, and effects to perform."""

    entries: tuple[Entry, ...] = ()
    effects: tuple[Effect, ...] = ()


Planned: TypeAlias = Entry | Answer | NotLoaded | NotApplied
PlanNote: TypeAlias = "Callable[[Planned], None]"
"""Called with the plan of a message before the plan is applied."""
NOTHING: Final = Answer()
NOT_APPLIED: Final = NotApplied()
