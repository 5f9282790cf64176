"""What a fold decides, apart from doing it: how to begin, how to repair, what becomes of a key.

Pure: values in, a value out; used by the loop, and by the model that searches every small history
for a way in which a fold could come to differ from its bucket without a word. Each guard here is
there because leaving it out lets the model find one.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

from msgspec import Struct

from penstock.kv.resume_check import (
    IDENTITY_MARK,
    RESUMABLE_MAX,
    is_same_log,
    is_window_intact,
    where_lost,
)

if TYPE_CHECKING:
    from penstock.kv.kv_types import LogInfo, Scope


class FoldStart(enum.Enum):
    """How a fold goes on."""

    RELIST = "relist"
    """From nothing: what is there, then what comes."""
    DELTA = "delta"
    """Behind its cursor."""
    UNANCHORED = "unanchored"
    """There is data without a cursor: what it is up to is not known."""
    LOSSY = "lossy"
    """After its cursor nothing is missing; before it the log may have lost values."""
    EXPIRED = "expired"
    """The log lost what came behind the cursor."""
    RESET = "reset"
    """The log is another one than the cursor is of."""
    FOREIGN = "foreign"
    """The fold is of another bucket altogether."""


class HeldEntry(Struct, frozen=True):
    """What a fold knows of itself; `cursor` 0 is none, `identity` empty is unknown."""

    cursor: int = 0
    is_empty: bool = True
    identity: str = ""
    seen_evicting: bool = False
    keys_min: int = 0
    """It has at least so many keys."""
    losses: int | None = None
    records: int | None = None


class ArtifactTrust(enum.Enum):
    """Whether a key that is not in the bucket is gone."""

    TRUE = "true"
    FALSE = "false"
    """It may have aged out: then the fold is right and the listing is not."""
    UNKNOWN = "unknown"


class Mode(enum.Enum):
    """What the caller wants done after a gap."""

    NONE = "none"
    RELIST = "relist"
    RESTORE = "restore"
    AUTO = "auto"


class RepairPlan(enum.Enum):
    """What is done after a gap."""

    RELIST_ONLY = "re-list only"
    """Keys deleted in the gap stay: the caller wanted it so, and is warned."""
    DIFF = "diff and re-list"
    RESTORE = "restore"
    REFUSE = "refuse"


class Fate(enum.Enum):
    """What becomes of one key in a restore."""

    TAKE = "take"
    KEEP = "keep"
    DELETE = "delete"


# -- beginning


def how_to_start(held: HeldEntry, log: LogInfo) -> FoldStart:
    """The question before every start; what is not certain is repaired, never assumed."""
    if is_foreign(held.identity, log.identity):
        return FoldStart.FOREIGN
    if not held.cursor:
        return FoldStart.RELIST if held.is_empty else FoldStart.UNANCHORED
    if held.identity and not is_same_log(held.identity, log.identity):
        return FoldStart.RESET
    if held.cursor > min(log.last_seq, RESUMABLE_MAX):
        return FoldStart.RESET
    is_intact = is_window_intact(log, held.cursor, losses=held.losses)
    if not is_intact or is_short(held, log):
        return FoldStart.EXPIRED
    return FoldStart.LOSSY if has_losses(held, log) else FoldStart.DELTA


def has_losses(held: HeldEntry, log: LogInfo) -> bool:
    """Whether values that the fold has may have been removed since it knew of all removals.

    A log that does not count them has fewer records then, unless others came since. One that drops
    values on its own has fewer anyway.
    """
    if log.losses is not None:
        return held.losses != log.losses
    is_counted = held.records is not None and log.records is not None and not log.evicts_current
    return is_counted and log.records < held.records  # type: ignore[operator]


def is_short(held: HeldEntry, log: LogInfo) -> bool:
    """Whether a bucket that drops nothing on its own has fewer records than the fold has keys.

    Each key has one at least, if only the marker of its delete. So some were purged that the fold
    has, which nothing else of the log tells.
    """
    if log.records is None or trust_in_listing(held, log) is not ArtifactTrust.TRUE:
        return False
    return held.keys_min > log.records


def is_foreign(ours: str, theirs: str) -> bool:
    """Whether two identities name different buckets, where both name any."""
    if IDENTITY_MARK not in ours or IDENTITY_MARK not in theirs:
        return False
    return ours.rpartition(IDENTITY_MARK)[0] != theirs.rpartition(IDENTITY_MARK)[0]


# -- repairing


def trust_in_listing(held: HeldEntry, log: LogInfo | None) -> ArtifactTrust:
    """Whether the keys that are in the bucket now are all that a fold should have.

    If not, an empty fold cannot become complete from the bucket alone either.
    """
    if log is None:
        return ArtifactTrust.UNKNOWN
    # A log that lost nothing lists everything, wherever it begins: what went was overwritten.
    if log.loss_floor == 0 or (log.first_seq <= 1 and not log.loss_floor):
        return ArtifactTrust.TRUE
    if log.evicts_current or held.seen_evicting:
        return ArtifactTrust.FALSE
    return ArtifactTrust.TRUE


def plan_repair(
    mode: Mode, trust: ArtifactTrust, *, has_source: bool, mirror: bool = False
) -> RepairPlan:
    """What to do after a gap. `mirror` says that absent means gone, whatever the bucket drops."""
    if mode is Mode.NONE:
        return RepairPlan.RELIST_ONLY
    if mode is Mode.RESTORE:
        return RepairPlan.RESTORE
    if mode is Mode.RELIST:
        return RepairPlan.REFUSE if trust is ArtifactTrust.FALSE and not mirror else RepairPlan.DIFF
    if trust is ArtifactTrust.TRUE:
        return RepairPlan.DIFF
    if has_source:
        return RepairPlan.RESTORE
    return RepairPlan.REFUSE if trust is ArtifactTrust.FALSE else RepairPlan.DIFF


def keeps_what_is_listed(start: FoldStart, log: LogInfo) -> bool:
    """Whether a key that the bucket lists may stay until its value comes.

    Not a value of another log, if this one may drop the new one before it comes: then the old one
    would stay for good.
    """
    return start is FoldStart.EXPIRED or not log.evicts_current


# -- restoring


class Offer(Struct, frozen=True):
    """An artifact, as far as it says what it is; `scope` None and `identity` empty are unknown."""

    cursor: int
    identity: str = ""
    scope: Scope | None = None


def why_not(offer: Offer, start: FoldStart, held: HeldEntry, scope: Scope, log: LogInfo) -> str:
    """Why an artifact cannot make a fold whole; empty if it can.

    One that does not say of which log it is may come from elsewhere, and is believed; but not where
    there is reason to think that it is of the log before this one.
    """
    if offer.scope is not None and not offer.scope.covers(scope):
        return "it does not cover the fold's scope"
    if offer.identity and offer.identity != log.identity:
        return "it is of another log"
    if start is FoldStart.RESET and not identity_after_reset(held, log):
        return "the bucket was set back, and it may be of what it was before"
    if start is FoldStart.UNANCHORED and held.identity != log.identity:
        return "of which log the fold's data is is not known, so neither is it of the artifact"
    if start in (FoldStart.RESET, FoldStart.UNANCHORED) and not offer.identity:
        return "it does not say of which log it is, and the bucket was made anew"
    if offer.cursor > log.last_seq:
        return f"its cursor {offer.cursor} is beyond the bucket's end at {log.last_seq}"
    # What the fold was at itself the bucket has lost: so this also refuses what is no newer.
    if not is_window_intact(log, offer.cursor):
        return f"{where_lost(log)}, behind its cursor {offer.cursor}"
    return ""


def identity_after_reset(held: HeldEntry, log: LogInfo) -> str:
    """What a fold without a cursor is of, once its log was replaced; empty if that says nothing.

    A bucket set back to a backup has the identity it had: then no artifact can be told from one
    that was made before.
    """
    return log.identity if held.identity and held.identity != log.identity else ""


def fate(local: int | None, offered: int | None, *, is_listed: bool, was_reset: bool) -> Fate:
    """What becomes of a key, by its revision here and in the artifact; None is absent.

    After a reset a revision here is one of another log, and compares with nothing.
    """
    if offered is not None:
        is_newer_here = local is not None and local >= offered and not was_reset
        return Fate.KEEP if is_newer_here else Fate.TAKE
    # Listed and not in the artifact: it was written behind the artifact's cursor and will come.
    return Fate.KEEP if is_listed else Fate.DELETE
