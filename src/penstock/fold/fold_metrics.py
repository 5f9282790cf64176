"""Prometheus metrics of folds: applied updates, lag, entries, disk usage, commit times.

    metrics = FoldMetrics()                                  # one per registry
    async with Fold.open(bucket, path, observers=[metrics.observer("config")]) as fold:
        metrics.watch("config", fold)                        # until `forget`

The observer records commits in the fold's worker as they happen. A scrape reads lag, entries, state
and ages from the fold, in the scraping thread. The label `fold` is the name given. The metrics
never change a fold or fail a commit.
"""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.base.units import SECOND_NS
from penstock.fold.follow.observer import Observer
from penstock.kv.errors import KvError
from penstock.kv.update_batch import Updates, pieces_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from prometheus_client.core import Metric

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.fold import Fold
    from penstock.fold.store.contract import SnapshotStore
    from penstock.kv.kv_types import KvUpdate, WatchCursor

BATCH_BUCKETS = (1, 10, 100, 1_000, 10_000, 100_000)
SECONDS_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0, 5.0)
ENTRIES_SECONDS = 60.0
"""Minimum interval between counts of entries and bytes, because some stores count by scanning."""
_NS = struct.Struct("<q")


@dataclass
class _Noted:
    """Recorded facts of one fold that the fold itself does not report; 0 means never."""

    applied_time: float = 0.0
    """When the server stored the last applied message."""
    exported_at: float = 0.0
    entries: int = 0
    bytes: int = 0
    counted_at: float = field(default=float("-inf"))


class FoldMetrics(Collector):
    """The metrics of the folds of one registry."""

    def __init__(
        self, registry: CollectorRegistry = REGISTRY, *, clock: Callable[[], float] = time.time
    ) -> None:
        names = ["fold"]
        self.batch = Histogram(
            "penstock_fold_batch_updates",
            "Updates in a commit.",
            names,
            registry=registry,
            buckets=BATCH_BUCKETS,
        )
        self.commit = Histogram(
            "penstock_fold_commit_seconds",
            "How long a commit took.",
            names,
            registry=registry,
            buckets=SECONDS_BUCKETS,
        )
        self.errors = Counter(
            "penstock_fold_store_errors", "Commits the store refused.", names, registry=registry
        )
        self.repairs = Counter(
            "penstock_fold_repairs", "Repairs, by kind.", [*names, "kind"], registry=registry
        )
        self.noted: dict[str, _Noted] = {}
        self._folds: dict[str, Fold] = {}
        self._clock = clock
        registry.register(self)

    def observer(self, name: str) -> Observer:
        """Return an observer to pass to `Fold.open`."""
        return _Meter(self, name, self._clock)

    def watch(self, name: str, fold: Fold) -> None:
        """Include an open fold in every scrape."""
        self._folds[name] = fold

    def forget(self, name: str) -> None:
        """Exclude a fold from scrapes; its counters stay."""
        self._folds.pop(name, None)

    def describe(self) -> list[Metric]:
        return list(_Gauges().families())

    def collect(self) -> Iterator[Metric]:
        gauges = _Gauges()
        for name, fold in tuple(self._folds.items()):
            try:
                self._read(gauges, name, fold)
            except KvError:
                continue  # the fold was closed
        yield from gauges.families()

    def _read(self, gauges: _Gauges, name: str, fold: Fold) -> None:
        noted, now = self.noted.setdefault(name, _Noted()), self._clock()
        if now - noted.counted_at >= ENTRIES_SECONDS:
            noted.entries, noted.bytes, noted.counted_at = fold.count(), fold.byte_count(), now
        lag = fold.lag
        behind = now - noted.applied_time if lag and noted.applied_time else 0.0
        gauges.revision.add_metric([name], fold.cursor.rank)
        gauges.lag.add_metric([name], lag)
        gauges.lag_seconds.add_metric([name], max(0.0, behind))
        gauges.entries.add_metric([name], noted.entries)
        gauges.bytes.add_metric([name], noted.bytes)
        gauges.rejected.add_metric([name], fold.rejected)
        gauges.state.add_metric([name, fold.state.value], 1)
        if (age := fold.contact_age) is not None:
            gauges.contact_age.add_metric([name], age)
        if noted.exported_at:
            gauges.export_age.add_metric([name], max(0.0, now - noted.exported_at))


class _Gauges:
    """Gauges that are read at scrape time."""

    def __init__(self) -> None:
        self.revision = _gauge("applied_revision", "The cursor.")
        self.lag = _gauge("lag_revisions", "Revisions the bucket is known to be ahead.")
        self.lag_seconds = _gauge("lag_seconds", "Age of what was applied last, while behind.")
        self.entries = _gauge("entries", "Keys that have a value.")
        self.bytes = _gauge("bytes", "Disk the fold takes.")
        self.rejected = _gauge("rejected_updates", "Updates that could not be parsed.")
        self.state = _gauge("state", "1 for the state the fold is in.", "state")
        self.contact_age = _gauge("contact_age_seconds", "Since the server was last heard.")
        self.export_age = _gauge("export_age_seconds", "Since the last artifact was made.")

    def families(self) -> tuple[GaugeMetricFamily, ...]:
        return (
            self.revision,
            self.lag,
            self.lag_seconds,
            self.entries,
            self.bytes,
            self.rejected,
            self.state,
            self.contact_age,
            self.export_age,
        )


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"penstock_fold_{name}", text, labels=["fold", *labels])


class _Meter(Observer):
    """Records the commits of one fold."""

    def __init__(self, metrics: FoldMetrics, name: str, clock: Callable[[], float]) -> None:
        self._batch = metrics.batch.labels(name)
        self._commit = metrics.commit.labels(name)
        self._errors = metrics.errors.labels(name)
        self._repairs = metrics.repairs
        self._name = name
        self._noted = metrics.noted.setdefault(name, _Noted())
        self._clock = clock
        self._began: float | None = None

    def before_commit(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        if self._began is not None:  # the previous commit failed
            self._errors.inc()
        self._began = time.perf_counter()

    def applied(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        if self._began is not None:
            self._commit.observe(time.perf_counter() - self._began)
            self._began = None
        self._batch.observe(len(updates))
        self._noted.applied_time = created_last(updates) or self._noted.applied_time

    def repaired(self, store: SnapshotStore, kind: str) -> None:
        self._repairs.labels(self._name, kind).inc()

    def exported(self, store: SnapshotStore, manifest: Manifest) -> None:
        self._noted.exported_at = self._clock()


def created_last(updates: Sequence[KvUpdate]) -> float:
    """Return when the server stored the last of the updates; 0 if unknown."""
    pieces = pieces_of(updates)
    last = pieces[-1] if pieces else ()
    if not last:
        return 0.0
    if isinstance(last, Updates):
        (time_ns,) = _NS.unpack(last.batch.times[-_NS.size :])
        return float(time_ns) / SECOND_NS
    return last[-1].created or 0.0
