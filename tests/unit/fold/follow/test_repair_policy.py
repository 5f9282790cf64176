"""The tables of decisions, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.fold.follow.repair_policy import (
    ArtifactTrust,
    Fate,
    FoldStart,
    HeldEntry,
    Mode,
    RepairPlan,
    fate,
    how_to_start,
    keeps_what_is_listed,
    plan_repair,
    trust_in_listing,
)
from penstock.kv.kv_types import LogInfo

LOG = "KV_b@1"


def log(first: int, last: int, **more: Any) -> LogInfo:
    more.setdefault("evicts_current", False)
    return LogInfo(identity=LOG, first_seq=first, last_seq=last, **more)


@pytest.mark.parametrize(
    ("held", "info", "start"),
    [
        (HeldEntry(), log(1, 9), FoldStart.RELIST),
        (HeldEntry(), log(5, 9), FoldStart.RELIST),
        (HeldEntry(0, False), log(1, 9), FoldStart.UNANCHORED),
        (HeldEntry(4, False, LOG), log(5, 9), FoldStart.DELTA),
        (HeldEntry(4, False, LOG), log(6, 9), FoldStart.EXPIRED),
        (HeldEntry(4, False, ""), log(1, 9), FoldStart.DELTA),
        (HeldEntry(9, False, LOG), log(1, 9), FoldStart.DELTA),
        (HeldEntry(10, False, LOG), log(1, 9), FoldStart.RESET),
        (HeldEntry(4, False, "KV_b@2"), log(1, 9), FoldStart.RESET),
        (HeldEntry(4, False, "KV_c@1"), log(1, 9), FoldStart.FOREIGN),
        (HeldEntry(0, True, "KV_c@1"), log(1, 9), FoldStart.FOREIGN),
        (HeldEntry(4, False, "other"), log(1, 9), FoldStart.RESET),
        (HeldEntry(2**64 - 1, False, LOG), log(1, 2**64 - 1), FoldStart.RESET),
        # A server that lost nothing is believed, wherever its log begins.
        (HeldEntry(4, False, LOG), log(8, 9, loss_floor=0), FoldStart.DELTA),
        (HeldEntry(4, False, LOG), log(5, 9, loss_floor=4), FoldStart.DELTA),
        (HeldEntry(4, False, LOG), log(8, 9, loss_floor=4), FoldStart.EXPIRED),
        (HeldEntry(4, False, LOG), log(1, 9, loss_floor=5), FoldStart.EXPIRED),
    ],
)
def test_how_fold_begins(held: HeldEntry, info: LogInfo, start: FoldStart) -> None:
    assert how_to_start(held, info) is start


@pytest.mark.parametrize(
    ("held", "info", "trust"),
    [
        (HeldEntry(), None, ArtifactTrust.UNKNOWN),
        (HeldEntry(), log(7, 9), ArtifactTrust.TRUE),
        (HeldEntry(), log(7, 9, evicts_current=True), ArtifactTrust.FALSE),
        (HeldEntry(), log(1, 9, evicts_current=True), ArtifactTrust.TRUE),
        (HeldEntry(seen_evicting=True), log(7, 9), ArtifactTrust.FALSE),
        (HeldEntry(seen_evicting=True), log(1, 9), ArtifactTrust.TRUE),
    ],
)
def test_when_listing_is_truth(held: HeldEntry, info: LogInfo | None, trust: ArtifactTrust) -> None:
    assert trust_in_listing(held, info) is trust


@pytest.mark.parametrize(
    ("mode", "true", "false", "unknown"),
    [
        (Mode.NONE, RepairPlan.RELIST_ONLY, RepairPlan.RELIST_ONLY, RepairPlan.RELIST_ONLY),
        (Mode.RELIST, RepairPlan.DIFF, RepairPlan.REFUSE, RepairPlan.DIFF),
        (Mode.RESTORE, RepairPlan.RESTORE, RepairPlan.RESTORE, RepairPlan.RESTORE),
        (Mode.AUTO, RepairPlan.DIFF, RepairPlan.REFUSE, RepairPlan.DIFF),
    ],
)
def test_which_repair_without_artifacts(
    mode: Mode, true: RepairPlan, false: RepairPlan, unknown: RepairPlan
) -> None:
    plans = {ArtifactTrust.TRUE: true, ArtifactTrust.FALSE: false, ArtifactTrust.UNKNOWN: unknown}
    for trust, plan in plans.items():
        assert plan_repair(mode, trust, has_source=False) is plan


def test_with_artifacts_only_trusted_listing_is_preferred() -> None:
    plans = {
        ArtifactTrust.TRUE: RepairPlan.DIFF,
        ArtifactTrust.FALSE: RepairPlan.RESTORE,
        ArtifactTrust.UNKNOWN: RepairPlan.RESTORE,
    }
    for trust, plan in plans.items():
        assert plan_repair(Mode.AUTO, trust, has_source=True) is plan


def test_values_of_another_log_do_not_wait_for_what_may_age_out() -> None:
    for start in (FoldStart.RESET, FoldStart.UNANCHORED):
        assert keeps_what_is_listed(start, log(1, 9))
        assert not keeps_what_is_listed(start, log(1, 9, evicts_current=True))
    assert keeps_what_is_listed(FoldStart.EXPIRED, log(5, 9, evicts_current=True))


def test_mirror_treats_missing_messages_as_removed() -> None:
    for trust in ArtifactTrust:
        assert plan_repair(Mode.RELIST, trust, has_source=False, mirror=True) is RepairPlan.DIFF


@pytest.mark.parametrize(
    ("local", "offered", "is_listed", "was_reset", "verdict"),
    [
        (None, 5, False, False, Fate.TAKE),
        (4, 5, False, False, Fate.TAKE),
        (5, 5, True, False, Fate.KEEP),
        (6, 5, True, False, Fate.KEEP),
        (6, 5, True, True, Fate.TAKE),
        (6, None, True, False, Fate.KEEP),
        (6, None, False, False, Fate.DELETE),
        (6, None, False, True, Fate.DELETE),
    ],
)
def test_outcomes_of_key(
    local: int | None, offered: int | None, is_listed: bool, was_reset: bool, verdict: Fate
) -> None:
    assert fate(local, offered, is_listed=is_listed, was_reset=was_reset) is verdict


def test_log_that_lost_nothing_lists_everything_wherever_it_begins() -> None:
    """Overwritten values moved its beginning; a listing is refused only where a value went."""
    held = HeldEntry(cursor=3, is_empty=False, seen_evicting=True)
    for floor, trust in (
        (0, ArtifactTrust.TRUE),
        (4, ArtifactTrust.FALSE),
        (None, ArtifactTrust.FALSE),
    ):
        info = log(5, 9, evicts_current=True, loss_floor=floor)
        assert trust_in_listing(held, info) is trust
