"""Decides how a fold starts, how it repairs a gap, and what a repair does with each key.

All functions are pure. `resume` and `watch_loop` call them, and so does the model checker, which
searches every small history for a way in which a fold silently differs from its bucket. Each guard
here is needed: without it the model finds such a history.
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
    """How a fold starts or resumes."""

    RELIST = "relist"
    """The fold is empty: list the current values, then follow."""
    DELTA = "delta"
    """Follow after the cursor."""
    UNANCHORED = "unanchored"
    """The fold has data without a cursor, so its position in the log is unknown."""
    LOSSY = "lossy"
    """Nothing after the cursor is missing, but the log may have lost values before it."""
    EXPIRED = "expired"
    """The log has lost records after the cursor."""
    RESET = "reset"
    """The cursor is of another log."""
    FOREIGN = "foreign"
    """The fold is of another bucket."""


class HeldEntry(Struct, frozen=True):
    """The state of a fold before it starts. `cursor` 0 means none, empty `identity` unknown."""

    cursor: int = 0
    is_empty: bool = True
    identity: str = ""
    seen_evicting: bool = False
    keys_min: int = 0
    """Lower bound of the number of keys in the fold."""
    losses: int | None = None
    records: int | None = None


class ArtifactTrust(enum.Enum):
    """Whether a key that the bucket does not list was deleted."""

    TRUE = "true"
    FALSE = "false"
    """The value may have aged out; then the fold is correct and the listing is incomplete."""
    UNKNOWN = "unknown"


class Mode(enum.Enum):
    """The repair mode that the caller selected."""

    NONE = "none"
    RELIST = "relist"
    RESTORE = "restore"
    AUTO = "auto"


class RepairPlan(enum.Enum):
    """The repair that is performed after a gap."""

    RELIST_ONLY = "re-list only"
    """Keys deleted in the gap stay in the fold; the caller selected this, and it is logged."""
    DIFF = "diff and re-list"
    RESTORE = "restore"
    REFUSE = "refuse"


class Fate(enum.Enum):
    """What a restore does with one key."""

    TAKE = "take"
    KEEP = "keep"
    DELETE = "delete"


# -- start


def how_to_start(held: HeldEntry, log: LogInfo) -> FoldStart:
    """Decide how a fold starts. If it is not certain that nothing is missing, choose a repair."""
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
    """Return whether values in the fold may have been removed since its counts were taken.

    A log that does not count losses has fewer records after a removal, unless new ones arrived. In
    a log that evicts values, fewer records prove nothing.
    """
    if log.losses is not None:
        return held.losses != log.losses
    is_counted = held.records is not None and log.records is not None and not log.evicts_current
    return is_counted and log.records < held.records  # type: ignore[operator]


def is_short(held: HeldEntry, log: LogInfo) -> bool:
    """Return whether a bucket that evicts nothing has fewer records than the fold has keys.

    Each key has at least one record, even if only a delete marker. So fewer records mean that keys
    of the fold were purged, which nothing else in the log shows.
    """
    if log.records is None or trust_in_listing(held, log) is not ArtifactTrust.TRUE:
        return False
    return held.keys_min > log.records


def is_foreign(ours: str, theirs: str) -> bool:
    """Return whether two identities name different buckets; False if either names none."""
    if IDENTITY_MARK not in ours or IDENTITY_MARK not in theirs:
        return False
    return ours.rpartition(IDENTITY_MARK)[0] != theirs.rpartition(IDENTITY_MARK)[0]


# -- repair


def trust_in_listing(held: HeldEntry, log: LogInfo | None) -> ArtifactTrust:
    """Return whether the bucket's current keys are exactly those that a fold should have.

    If not, the bucket alone cannot complete an empty fold either.
    """
    if log is None:
        return ArtifactTrust.UNKNOWN
    # A log without losses lists everything, wherever it begins: removed records were overwritten.
    if log.loss_floor == 0 or (log.first_seq <= 1 and not log.loss_floor):
        return ArtifactTrust.TRUE
    if log.evicts_current or held.seen_evicting:
        return ArtifactTrust.FALSE
    return ArtifactTrust.TRUE


def plan_repair(
    mode: Mode, trust: ArtifactTrust, *, has_source: bool, mirror: bool = False
) -> RepairPlan:
    """Choose the repair after a gap. With `mirror`, a key that is not listed counts as deleted,
    even if the bucket evicts values."""
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
    """Return whether a listed key may keep its old value until the new one arrives.

    It may not if the old value can be of another log and this log evicts values: if the log drops
    the new value before it arrives, the old one would stay forever.
    """
    return start is FoldStart.EXPIRED or not log.evicts_current


# -- restore


class Offer(Struct, frozen=True):
    """What an artifact reports about itself. `scope` None and empty `identity` mean unknown."""

    cursor: int
    identity: str = ""
    scope: Scope | None = None


def why_not(offer: Offer, start: FoldStart, held: HeldEntry, scope: Scope, log: LogInfo) -> str:
    """Return why an artifact cannot restore a fold; empty if it can.

    An artifact without an identity may come from another implementation and is accepted, unless it
    may be of the log that preceded the current one.
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
        return "it does not say of which log it is, and the bucket was recreated"
    if offer.cursor > log.last_seq:
        return f"its cursor {offer.cursor} is beyond the bucket's end at {log.last_seq}"
    # The bucket has lost records after the fold's own cursor, so an artifact that is not newer
    # than the fold fails this check too.
    if not is_window_intact(log, offer.cursor):
        return f"{where_lost(log)}, behind its cursor {offer.cursor}"
    return ""


def identity_after_reset(held: HeldEntry, log: LogInfo) -> str:
    """Return the identity to store after the log was replaced; empty if the identity is the same.

    A bucket restored from a backup may keep its identity. Then an artifact of the current log
    cannot be distinguished from one created before the restore.
    """
    return log.identity if held.identity and held.identity != log.identity else ""


def fate(local: int | None, offered: int | None, *, is_listed: bool, was_reset: bool) -> Fate:
    """Decide what a restore does with a key, by its revision in the fold and in the artifact.

    None means absent. After a reset the fold's revision is of another log and cannot be compared.
    """
    if offered is not None:
        is_newer_here = local is not None and local >= offered and not was_reset
        return Fate.KEEP if is_newer_here else Fate.TAKE
    # A listed key that is not in the artifact was written after the artifact's cursor, so the
    # watch will deliver it.
    return Fate.KEEP if is_listed else Fate.DELETE
