"""What is noted of commits: failures, repairs, and how old what was applied is."""

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry

from penstock.fold import MemorySnapshot
from penstock.fold.fold_metrics import FoldMetrics, created_last
from penstock.kv.kv_types import KvUpdate, Op
from penstock.kv.update_batch import JoinedUpdates
from support.folds import at, put


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def test_commit_that_is_tried_again_was_refused_before(registry: CollectorRegistry) -> None:
    meter = FoldMetrics(registry).observer("f")
    store, batch = MemorySnapshot.open(), [put("a", b"", 1)]
    meter.before_commit(store, batch, at(1))
    meter.before_commit(store, batch, at(1))
    meter.applied(store, batch, at(1))
    meter.before_commit(store, batch, at(1))
    assert registry.get_sample_value("penstock_fold_store_errors_total", {"fold": "f"}) == 1


def test_repairs_are_counted_by_kind(registry: CollectorRegistry) -> None:
    meter = FoldMetrics(registry).observer("f")
    for kind in ("relist", "restore", "relist"):
        meter.repaired(MemorySnapshot.open(), kind)
    labels = {"fold": "f", "kind": "relist"}
    assert registry.get_sample_value("penstock_fold_repairs_total", labels) == 2


def test_two_folds_share_registry(registry: CollectorRegistry) -> None:
    metrics = FoldMetrics(registry)
    for name in ("f", "g"):
        metrics.observer(name).applied(MemorySnapshot.open(), [put("a", b"", 1)], at(1))
    for name in ("f", "g"):
        count = registry.get_sample_value("penstock_fold_batch_updates_count", {"fold": name})
        assert count == 1


@pytest.mark.parametrize(
    ("updates", "time"),
    [
        ([], 0.0),
        ([KvUpdate(Op.PUT, "a", created=1.5), KvUpdate(Op.PUT, "a", created=2.5)], 2.5),
        ([KvUpdate(Op.PUT, "a")], 0.0),
        (
            JoinedUpdates(
                [[KvUpdate(Op.PUT, "a", created=1.5)], [KvUpdate(Op.PUT, "a", created=3.5)]]
            ),
            3.5,
        ),
        (JoinedUpdates([]), 0.0),
    ],
)
def test_time_of_batch_is_that_of_its_last_update(updates: list[KvUpdate], time: float) -> None:
    assert created_last(updates) == time
