"""The values that buckets, watchers and folds hand to each other.

A revision is the sequence of a message in the bucket's stream. On the hot path it stays an `int`;
`VersionToken` and `WatchCursor` wrap its eight big-endian bytes where something is stored, compared
or shown, and also hold the tokens of other engines, up to ten bytes of any kind. Values here are
immutable and know no server, no store and no clock.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, ClassVar

from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable

TOKEN_BYTES_MAX = 10
"""The longest version or cursor: a versionstamp of FoundationDB."""
REVISION_BYTES = 8
REVISION_MAX = 2**64 - 1
REVISION_UNKNOWN = -1
SYNTHETIC = "synthetic"
"""The reason of a delete that a repair made up: no message of the bucket stands behind it."""


class Op(enum.IntEnum):
    """What an update does to its key."""

    PUT = 1
    DELETE = 2
    PURGE = 3


class _Token(Struct, frozen=True, gc=False):
    """Opaque bytes; eight of them are a revision."""

    raw: bytes = b""

    def __post_init__(self) -> None:
        if len(self.raw) > TOKEN_BYTES_MAX:
            raise ValueError(f"a token has at most {TOKEN_BYTES_MAX} bytes, not {len(self.raw)}")

    @property
    def revision(self) -> int | None:
        """The revision this token is, or None if it is not one."""
        return int.from_bytes(self.raw, "big") if len(self.raw) == REVISION_BYTES else None

    def __bool__(self) -> bool:
        return bool(self.raw)


class VersionToken(_Token, frozen=True, gc=False):
    """The version of one key: what a conditional write is conditional on."""

    UNKNOWN: ClassVar[VersionToken]

    @classmethod
    def of(cls, revision: int) -> VersionToken:
        return VersionToken(revision.to_bytes(REVISION_BYTES, "big"))

    @property
    def log_identity(self) -> str:
        """The log the version is of (`LogInfo.identity`); empty where it is not known."""
        return ""


class WriteVersion(VersionToken, frozen=True, gc=False):
    """What a write returns: a version, and the log it is of. Equal to the version alone."""

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
    """A position in a bucket's log: everything up to it has been taken. False if there is none."""

    NONE: ClassVar[WatchCursor]

    @classmethod
    def of(cls, revision: int) -> WatchCursor:
        return cls(revision.to_bytes(REVISION_BYTES, "big"))

    @property
    def rank(self) -> int:
        """The revision, or 0: the only order among cursors that anything relies on."""
        return self.revision or 0


VersionToken.UNKNOWN = VersionToken()
WatchCursor.NONE = WatchCursor()


class KvEntry(Struct, frozen=True, gc=False):
    """One key as it was read."""

    key: str
    value: bytes
    version: VersionToken

    @property
    def revision(self) -> int | None:
        return self.version.revision


class KvUpdate(Struct, frozen=True, gc=False):
    """One event of a watch. `token` is a version that is not a revision; else it is empty."""

    op: Op
    key: str
    value: bytes = b""
    revision: int = REVISION_UNKNOWN
    created: float | None = None
    """When the server took the message, in seconds since 1970."""
    reason: str | None = None
    """Why the key went, if not by a client's word: MaxAge, Purge, Remove or `SYNTHETIC`."""
    token: bytes = b""

    @property
    def version(self) -> VersionToken:
        if self.revision >= 0:
            return VersionToken.of(self.revision)
        return VersionToken(self.token)


class CaughtUp(Struct, frozen=True):
    """What was there when the watch began has been delivered. Comes exactly once."""


class Bookmark(Struct, frozen=True):
    """Everything up to `cursor` was looked at; none of it was in scope since the last update."""

    cursor: WatchCursor


WatchEvent = KvUpdate | CaughtUp | Bookmark


class LogInfo(Struct, frozen=True, kw_only=True):
    """What a bucket's log is, and what it may have lost."""

    identity: str
    """Stream name and creation time, and where the server tells it the incarnation: another log of
    the same name has another identity; with an incarnation also one restored from a backup."""
    first_seq: int
    last_seq: int
    evicts_current: bool
    """It may remove the newest value of a key on its own: by age, by TTL, or when it is full."""
    loss_floor: int | None = None
    """The highest sequence that went while it was the newest of its key, where the server tells."""
    records: int | None = None
    """How many there are, where it is known."""
    losses: int | None = None
    """How many newest values went by request or for an older one, where the server tells."""
    falls_back: bool = False
    """A value may expire while an older one of its key stays, which then is the newest again."""


class Scope(Struct, frozen=True):
    """What a watch covers: keys that start with one of `prefixes`, which do not overlap.

    A prefix is empty or ends in a dot, since a wildcard of a subject is a whole token.
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
        """A scope of several prefixes; what lies within another is dropped."""
        return cls(disjoint(tuple(prefixes)))

    def covers(self, other: Scope) -> bool:
        return all(wanted.startswith(self.prefixes) for wanted in other.prefixes)

    def holds(self, key: str) -> bool:
        return key.startswith(self.prefixes)


def disjoint(prefixes: tuple[str, ...]) -> tuple[str, ...]:
    """The same keys under as few prefixes as possible, in ascending order."""
    kept: list[str] = []
    for prefix in sorted(set(prefixes)):
        if not kept or not prefix.startswith(kept[-1]):
            kept.append(prefix)
    return tuple(kept)
