"""Value types that buckets, watchers and folds exchange.

A revision is the sequence of a message in the bucket's stream. On the hot path it stays an `int`.
`VersionToken` and `WatchCursor` wrap its eight big-endian bytes for storing, comparing and
displaying it. They also hold the tokens of other engines: up to ten arbitrary bytes. The types are
immutable and do not depend on a server, a store or a clock.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN_BYTES_MAX = 10
"""The longest version or cursor: a FoundationDB versionstamp."""
REVISION_BYTES = 8
REVISION_MAX = 2**64 - 1
REVISION_UNKNOWN = -1
SYNTHETIC = "synthetic"
"""The reason of a delete that a repair generated; the bucket has no message for it."""


class Op(enum.IntEnum):
    """What an update does to its key."""

    PUT = 1
    DELETE = 2
    PURGE = 3


class _Token(Struct, frozen=True, gc=False):
    """Opaque bytes; a token of exactly eight bytes is a revision."""

    raw: bytes = b""

    def __post_init__(self) -> None:
        if len(self.raw) > TOKEN_BYTES_MAX:
            raise ValueError(f"a token has at most {TOKEN_BYTES_MAX} bytes, not {len(self.raw)}")

    @property
    def revision(self) -> int | None:
        """The revision, or None if the token is not a revision."""
        return int.from_bytes(self.raw, "big") if len(self.raw) == REVISION_BYTES else None

    def __bool__(self) -> bool:
        return bool(self.raw)


class VersionToken(_Token, frozen=True, gc=False):
    """The version of one key, as a conditional write expects it."""

    UNKNOWN: ClassVar[VersionToken]

    @classmethod
    def of(cls, revision: int) -> VersionToken:
        return VersionToken(revision.to_bytes(REVISION_BYTES, "big"))

    @property
    def log_identity(self) -> str:
        """The log that assigned the version (`LogInfo.identity`); empty if unknown."""
        return ""


class WriteVersion(VersionToken, frozen=True, gc=False):
    """The result of a write: a version and its log. Compares equal to the plain version."""

    log: str = ""

    @classmethod
    def in_log(cls, revision: int, log: str) -> WriteVersion:
        return cls(revision.to_bytes(REVISION_BYTES, "big"), log)

    @property
    def log_identity(self) -> str:
        return self.log

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionToken) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash(VersionToken(self.raw))


class WatchCursor(_Token, frozen=True, gc=False):
    """A position in a bucket's log: everything up to it was received. Falsy if empty."""

    NONE: ClassVar[WatchCursor]

    @classmethod
    def of(cls, revision: int) -> WatchCursor:
        return cls(revision.to_bytes(REVISION_BYTES, "big"))

    @property
    def rank(self) -> int:
        """The revision, or 0. Code orders cursors only by this number."""
        return self.revision or 0


VersionToken.UNKNOWN = VersionToken()
WatchCursor.NONE = WatchCursor()


class KvEntry(Struct, frozen=True, gc=False):
    """One key with its value and version."""

    key: str
    value: bytes
    version: VersionToken

    @property
    def revision(self) -> int | None:
        return self.version.revision


class KvUpdate(Struct, frozen=True, gc=False):
    """One change to a key. `token` holds a version that is not a revision; otherwise empty."""

    op: Op
    key: str
    value: bytes = b""
    revision: int = REVISION_UNKNOWN
    created: float | None = None
    """When the server stored the message, in seconds since 1970."""
    reason: str | None = None
    """Why the key was removed, if no client did it: MaxAge, Purge, Remove or `SYNTHETIC`."""
    token: bytes = b""

    @property
    def version(self) -> VersionToken:
        if self.revision >= 0:
            return VersionToken.of(self.revision)
        return VersionToken(self.token)


class CaughtUp(Struct, frozen=True):
    """The watch has delivered everything that existed when it began. Sent exactly once."""


class Bookmark(Struct, frozen=True):
    """The watch has passed `cursor`; nothing since the last update was in scope."""

    cursor: WatchCursor


class Recheck(Struct, frozen=True):
    """The log may have another history than the one delivered so far, or have lost values of it: a
    reader that remembers records compares them before it takes the next event.

    Sent after the watch has created its consumer again, because a server that was restored from a
    copy cannot be recognised by its log's state. Sent once per heartbeat too, if a log that counts
    records, but no losses, has changed.
    """

    is_resumed: bool
    """The consumer was created again."""


WatchEvent = KvUpdate | CaughtUp | Bookmark | Recheck


class LogInfo(Struct, frozen=True, kw_only=True):
    """The identity and state of a bucket's log, and what it may have lost."""

    identity: str
    """Stream name and creation time, plus the incarnation if the server reports it. Another log
    with the same name has another identity; with an incarnation, so has one restored from a
    backup."""
    first_seq: int
    last_seq: int
    evicts_current: bool
    """The log may remove the newest value of a key on its own: by age, by TTL, or when full."""
    loss_floor: int | None = None
    """The highest sequence removed while it was the newest of its key, if the server reports it."""
    records: int | None = None
    """Number of records in the log, if known."""
    losses: int | None = None
    """Number of newest values removed by request or while an older value of the key stayed, if
    the server reports it."""
    falls_back: bool = False
    """A value may expire while an older value of its key stays and becomes the newest again."""


class Scope(Struct, frozen=True):
    """The keys a watch covers: those that start with one of `prefixes`, which do not overlap.

    A prefix is empty or ends in a dot, because a subject wildcard matches whole tokens.
    """

    prefixes: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        if not self.prefixes:
            raise ValueError("a scope needs a prefix; the empty one covers everything")
        for prefix in self.prefixes:
            if prefix and not prefix.endswith("."):
                raise ValueError(f"prefix {prefix!r} does not end in a dot")
        if disjoint(self.prefixes) != self.prefixes:
            raise ValueError("prefixes overlap or are unsorted; Scope.of() puts them in order")

    @classmethod
    def all(cls) -> Scope:
        return cls()

    @classmethod
    def prefix(cls, prefix: str) -> Scope:
        return cls((prefix,))

    @classmethod
    def of(cls, prefixes: Iterable[str]) -> Scope:
        """Return a scope of several prefixes, without those that another prefix contains."""
        return cls(disjoint(tuple(prefixes)))

    def covers(self, other: Scope) -> bool:
        return all(wanted.startswith(self.prefixes) for wanted in other.prefixes)

    def holds(self, key: str) -> bool:
        return key.startswith(self.prefixes)


def disjoint(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the fewest prefixes that cover the same keys, in ascending order."""
    kept: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)
