"""How a fold is: its state, and what it reports of itself at one moment."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from penstock.kv.kv_types import WatchCursor


class FoldState(enum.Enum):
    """How a fold fares. It answers in all of them but the first and the last."""

    OPENING = "opening"
    CATCHING_UP = "catching up"
    LIVE = "live"
    REPAIRING = "repairing"
    RETRYING = "retrying"
    """The watch failed and is about to be tried again; see the status for why."""
    STORE_FAILING = "store failing"
    """The store refuses what the bucket sent: a full disk, an IO error.

    The fold answers with what it had stored before. The commit is tried again until it succeeds.
    """
    STALE = "stale"
    """The bucket is missing, a repair was refused, or the artifact for it is of no use.

    It is tried again, but an operator should look.
    """
    FAILED = "failed"
    """It is a fold of something else; it is not tried again."""
    CLOSED = "closed"


class FoldStatus(Struct, frozen=True, kw_only=True):
    """A fold at one moment."""

    state: FoldState
    cursor: WatchCursor
    newest: int
    """The highest revision the bucket is known to have had, of keys in the fold's scope."""
    lag: int
    """Revisions between the cursor and that."""
    entries: int
    identity: str
    scope: tuple[str, ...]
    repairs: int
    restarts: int
    rejected: int
    """Updates for which `parse` raised: in the fold, but not applied."""
    error: str
    """What ended the last watch, or why the store refuses; empty while all goes well."""
    doubt: str = ""
    """Why a fold that is live may still differ from its bucket; empty if it does not."""
    contact_age: float | None = None
    """Seconds since the server was last heard; None if it never was."""
