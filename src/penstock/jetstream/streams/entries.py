"""What a stream decides, as values: entries that change it, answers that do not.

`Stream.plan` makes them, `Stream.apply` carries entries out. An entry holds all that applying it
needs, its time included, so that it can be written down, sent elsewhere and applied there with
the same result. The tag of an entry is part of that form: it is never given another meaning.
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
    """Where a message stands in a fast batch."""

    id: str
    seq: int
    commit: bool
    gap_ok: bool
    flow: int


class Special(msgspec.Struct, frozen=True, gc=False):
    """What only some messages have."""

    ttl_ns: int = 0
    msg_id: bytes = b""
    rollup: str = ""
    """Which older messages go: ROLLUP_SUBJECT, ROLLUP_ALL, or none."""
    purged: str = ""
    """A subject whose messages go, too: the schedule that has done its work."""
    skip: bool = False
    """Nobody wants it: it uses a sequence and is not stored."""
    value: str = ""
    """The total of a counter, for its acknowledgement."""
    fast: FastMark | None = None
    origin_seq: int = 0
    """Of a mirror: the sequence it has, and must have here; earlier ones stay empty."""


class Publish(msgspec.Struct, frozen=True, gc=False, tag="pub", array_like=True):
    """A message to be stored, its header as it will be read back."""

    ts_ns: int
    subject: str
    header: bytes
    payload: bytes
    reply: str = ""
    special: Special | None = None


class BatchEntry(msgspec.Struct, frozen=True, tag="batch", array_like=True):
    """Messages that are stored together or not at all; `count` is what its publisher counts.

    Those that are nothing but stored are packed (`store.packed`), and before the others.
    """

    ts_ns: int
    id: str
    items: tuple[Publish, ...]
    count: int
    reply: str = ""
    packed: bytes = b""


class Purge(msgspec.Struct, frozen=True, tag="purge", array_like=True):
    """One slice of a purge, as `Store.purge_slice`; the empty subject is every subject.

    The first says what was asked for. Those that follow have a `bound` besides: `keep`, `bound` and
    `start` are then where the purge stands.
    """

    ts_ns: int
    subject: str = ""
    before_seq: int = 0
    keep: int = 0
    bound: int = 0
    start: int = 0

    @property
    def is_of_all(self) -> bool:
        """Whether nothing stays, so that the stream has begun even if nothing was there."""
        return self.subject in ("", ">") and not self.keep and self.before_seq != 1


class Remove(msgspec.Struct, frozen=True, tag="rm", array_like=True):
    """Messages to be taken out by sequence; those that are gone already do not matter."""

    ts_ns: int
    seqs: tuple[int, ...]
    erase: bool = False


class Expire(msgspec.Struct, frozen=True, tag="age", array_like=True):
    """What is due at `ts_ns` goes."""

    ts_ns: int


class Trim(msgspec.Struct, frozen=True, tag="trim", array_like=True):
    """One slice of what is over the limits goes, as `Store.trim`."""

    ts_ns: int


class Skip(msgspec.Struct, frozen=True, tag="skip", array_like=True):
    """Sequences of an origin that hold nothing there any more."""

    ts_ns: int
    seqs: Range


class Update(msgspec.Struct, frozen=True, tag="cfg", array_like=True):
    """Another configuration, already checked against the one it replaces."""

    ts_ns: int
    cfg: StreamConfig


Entry: TypeAlias = Publish | BatchEntry | Purge | Remove | Expire | Trim | Skip | Update


class Answer(NamedTuple):
    """Nothing changes: the message was refused, is a duplicate, or waits for others."""

    effects: tuple[Effect, ...] = ()
    refusal: ApiError | None = None
    is_duplicate: bool = False
    at_fault: bytes = b""
    """Header of the message refused, if that is another message of an atomic batch."""


class NotLoaded(NamedTuple):
    """No answer yet: once the block is in memory the same question has one.

    Until then nothing behind it may be planned, or messages would overtake each other.
    """

    cold: Cold


class Applied(NamedTuple):
    """What an entry did. `effects` may leave when everything in it is durable."""

    effects: tuple[Send, ...] = ()
    stored: tuple[tuple[int, str], ...] = ()
    """Sequence and subject of each message that was stored."""
    removed: Removed = NOTHING_REMOVED
    """What it took out, by limits, rollup, purge or age."""
    by_limit: Removed = NOTHING_REMOVED
    """Of a single message that was stored: the part of `removed` that limits took."""
    rolled_up: Removed = NOTHING_REMOVED
    """The part that a rollup took."""
    is_bulk: bool = False
    """Whether more was stored than `stored` tells, before it."""
    rest: tuple[Purge, ...] = ()
    """The slices that follow: to be applied later, when others were served."""


class Due(NamedTuple):
    """What time asks for: entries to apply in this order, and effects to perform."""

    entries: tuple[Entry, ...] = ()
    effects: tuple[Effect, ...] = ()


Planned: TypeAlias = Entry | Answer | NotLoaded
PlanNote: TypeAlias = "Callable[[Planned], None]"
"""Is shown what a message leads to, before it is performed."""
NOTHING: Final = Answer()
