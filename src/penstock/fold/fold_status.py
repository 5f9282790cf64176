"""The state of a fold, and its status report at one moment."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from penstock.kv.kv_types import WatchCursor


class FoldState(enum.Enum):
    """The state of a fold. Reads work in every state except `OPENING` and `CLOSED`."""

    OPENING = "opening"
    CATCHING_UP = "catching up"
    LIVE = "live"
    REPAIRING = "repairing"
    RETRYING = "retrying"
    """The watch failed and will be restarted; the status contains the error."""
    STORE_FAILING = "store failing"
    """The store rejects commits: a full disk, an IO error.

    Reads return what was stored before. The fold retries the commit until it succeeds.
    """
    STALE = "stale"
    """The bucket is missing, a repair was refused, or the artifact for the repair is unusable.

    The fold retries, but an operator should investigate.
    """
    FAILED = "failed"
    """The store belongs to another bucket or scope; the fold does not retry."""
    CLOSED = "closed"


class FoldStatus(Struct, frozen=True, kw_only=True):
    """The status of a fold at one moment."""

    state: FoldState
    cursor: WatchCursor
    newest: int
    """The highest revision the bucket is known to have had for keys in the fold's scope."""
    lag: int
    """Revisions between the cursor and `newest`."""
    entries: int
    identity: str
    scope: tuple[str, ...]
    repairs: int
    restarts: int
    rejected: int
    """Updates for which `parse` raised: stored in the fold, but not passed to `apply`."""
    error: str
    """Why the last watch ended or the store rejects commits; empty if there is no error."""
    doubt: str = ""
    """Why a live fold may still differ from its bucket; empty if there is no such reason."""
    contact_age: float | None = None
    """Seconds since the last message or heartbeat of the server; None if there was none."""
