"""Folds of live buckets with what is derived: digests, tables, indexes, a fleet, metrics."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
from prometheus_client import CollectorRegistry

from penstock.fold import Fold
from penstock.fold.artifact.digest import FoldDigest, Terms, as_hex, compare
from penstock.fold.derive.indexes import Index
from penstock.fold.derive.quarantine import Quarantine
from penstock.fold.derive.sql_tables import Tables, Transaction
from penstock.fold.derive.value_codecs import Json
from penstock.fold.fold_metrics import FoldMetrics
from penstock.fold.ship.fleet_status import (
    compare_with_bucket,
    digest_of_bucket,
    fleet,
    publish,
    status_of,
)
from penstock.kv.kv_types import WatchCursor
from support.folds import KINDS, delete, put
from support.followed_folds import QUICK, fill, folded_up_to, ready, recreate, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from nats.js import JetStreamContext

    from penstock.fold import SnapshotStore
    from penstock.kv.bucket import NatsBucket
    from penstock.kv.kv_types import KvEntry, KvUpdate
    from support.kv import Maker

MANY = 1_100
"""Past the first revision that is noted."""


def create(tx: Transaction) -> None:
    tx.execute("CREATE TABLE IF NOT EXISTS changes (key TEXT, revision INTEGER)")


def note(tx: Transaction, updates: Sequence[KvUpdate]) -> None:
    tx.executemany(
        "INSERT INTO changes VALUES (?, ?)", [(one.key, one.revision) for one in updates]
    )


def forget(tx: Transaction) -> None:
    tx.execute("DELETE FROM changes")


def noted(path: Path) -> list[int]:
    db = sqlite3.connect(path)
    try:
        return [row[0] for row in db.execute("SELECT revision FROM changes ORDER BY rowid")]
    finally:
        db.close()


def parity(entry: KvEntry) -> str:
    return "odd" if int(entry.value) % 2 else "even"


@pytest.mark.parametrize("name", KINDS)
async def test_copies_in_different_stores_agree_with_each_other_and_with_bucket(
    name: str, bucket: NatsBucket, tmp_path: Path
) -> None:
    kind, digests = KINDS[name], (FoldDigest(), FoldDigest())
    await fill(bucket, 10)
    async with (
        Fold.open(bucket, backend="memory", batch=QUICK, extensions=[digests[0]]) as one,
        Fold.open(
            bucket,
            tmp_path / "fold",
            backend=kind.store,
            options=kind.options,
            batch=QUICK,
            extensions=[digests[1]],
        ) as other,
    ):
        await ready(one)
        last = await fill(bucket, 10, 5)
        for fold in (one, other):
            await folded_up_to(fold, last)
        verdict = compare(digests[0].report(), digests[1].report())
        assert (verdict.agree, verdict.revision) == (True, last)
        assert digests[1].value == await digest_of_bucket(bucket)
        assert await other.run(digests[1].verify, other.store)


async def test_notes_of_live_fold_match_bucket_at_that_time(
    bucket: NatsBucket, tmp_path: Path
) -> None:
    digest = FoldDigest()
    async with Fold.open(
        bucket, tmp_path / "fold", batch=QUICK, extensions=[digest], backend="log"
    ) as fold:
        await ready(fold)
        await folded_up_to(fold, await fill(bucket, MANY))
        await until(lambda: 1_000 in digest.report().checkpoints)
    terms, total = Terms(), 0
    async for entry in bucket.reader().scan():  # each key was written once
        total += terms.of_entry(entry) if (entry.revision or 0) <= 1_000 else 0
    assert digest.report().checkpoints == {1_000: as_hex(total)}


async def test_tampered_fold_is_detected(bucket: NatsBucket, tmp_path: Path) -> None:
    last = await fill(bucket, 10)
    async with Fold.open(bucket, tmp_path / "fold.db", batch=QUICK) as fold:
        await ready(fold)
        await folded_up_to(fold, last)
        assert (await compare_with_bucket(fold.store, bucket)).agree is True

        def tamper(store: SnapshotStore) -> None:
            wrong = [put("k3", b"forged", 3), delete("k4", 4), put("k99", b"", 5)]
            store.apply(wrong, store.cursor)

        await fold.run(tamper, fold.store)
        verdict = await compare_with_bucket(fold.store, bucket)
        assert (verdict.agree, verdict.differing, verdict.extra) == (False, ("k3", "k4"), 1)


async def test_table_counts_every_change_once_over_restarts_and_recreation(
    bucket: NatsBucket, jetstream: JetStreamContext, tmp_path: Path
) -> None:
    path = tmp_path / "fold.db"
    options = {"tables": Tables(note, create=create, reset=forget)}
    for first in (1, 4, 7):
        async with Fold.open(bucket, path, options=options, batch=QUICK) as fold:
            await ready(fold)
            await folded_up_to(fold, await fill(bucket, 3, first))
    assert noted(path) == list(range(1, 10))
    await recreate(bucket, jetstream)
    last = await fill(bucket, 2)
    async with Fold.open(bucket, path, options=options, batch=QUICK) as fold:
        await ready(fold)
        await folded_up_to(fold, last)
        assert fold.count() == 2
    assert sorted(revision for revision in noted(path) if revision > 0) == [1, 2]


async def test_index_and_quarantine_follow_bucket(bucket: NatsBucket, tmp_path: Path) -> None:
    index, bad = Index("parity", parity), Quarantine(Json(int))
    await fill(bucket, 4)
    async with Fold.open(
        bucket, tmp_path / "fold.db", batch=QUICK, extensions=[index, bad]
    ) as fold:
        await ready(fold)
        assert [one.key for one in index.find(fold.store, "odd")] == ["k1", "k3"]
        version = await bucket.writer().put("k3", b"no number")
        await folded_up_to(fold, version.revision or 0)
        assert [one.key for one in index.find(fold.store, "odd")] == ["k1"]
        assert [one.key for one in bad.listed(fold.store)] == ["k3"]


async def test_fleet_shows_members_that_differ_lag_or_cannot_read(
    bucket: NatsBucket, make: Maker, tmp_path: Path
) -> None:
    status = await make()
    await fill(bucket, 5)
    async with (
        Fold.open(bucket, backend="memory", batch=QUICK, extensions=[FoldDigest()]) as one,
        Fold.open(
            bucket,
            tmp_path / "fold.db",
            batch=QUICK,
            extensions=[FoldDigest(), Quarantine(Json(int))],
        ) as other,
    ):
        last = (await bucket.writer().put("bad", b"{")).revision or 0
        for name, fold in (("node 1", one), ("node.2", other)):
            await ready(fold)
            await folded_up_to(fold, last)
            await publish(status.writer(), status_of(fold, name, now=100.0))
        seen = await fleet(status.reader(), bucket.name)
        assert [node.node for node in seen.nodes] == ["node 1", "node.2"]
        assert {node.cursor for node in seen.nodes} == {last}
        assert seen.disagreements() == []
        assert [(node.node, node.rejected) for node in seen.rejecting()] == [("node.2", ("bad",))]
        assert seen.silent(110.0, 5.0) == list(seen.nodes)
        assert (await fleet(status.reader(), "another")).nodes == ()

        def tamper(store: SnapshotStore) -> None:
            store.apply([put("k3", b"forged", 3)], store.cursor)
            store.apply([], WatchCursor.of(last + 1))

        for fold in (one, other):
            await fold.run(tamper if fold is other else _pass, fold.store)
        for name, fold in (("node 1", one), ("node.2", other)):
            await publish(status.writer(), status_of(fold, name, now=200.0))
        [disagreement] = (await fleet(status.reader())).disagreements()
        assert disagreement.revision == last + 1
        assert sorted(disagreement.holders.values()) == [("node 1",), ("node.2",)]


def _pass(store: SnapshotStore) -> None:
    store.apply([], WatchCursor.of(store.cursor.rank + 1))


async def test_invalid_status_is_ignored(make: Maker) -> None:
    status = await make()
    await status.writer().put("b.node", b"{")
    await status.writer().put("b.other", json.dumps({"node": 7}).encode())
    assert (await fleet(status.reader())).nodes == ()


async def test_metrics_follow_fold(bucket: NatsBucket, tmp_path: Path) -> None:
    registry = CollectorRegistry()
    metrics = FoldMetrics(registry)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"penstock_fold_{name}", {"fold": "f", **labels})

    last = await fill(bucket, 10)
    async with Fold.open(
        bucket, tmp_path / "fold.db", batch=QUICK, observers=[metrics.observer("f")]
    ) as fold:
        metrics.watch("f", fold)
        await ready(fold)
        await folded_up_to(fold, last)
        assert value("applied_revision") == last
        assert value("lag_revisions") == 0
        assert value("lag_seconds") == 0
        assert value("entries") == 10
        assert (value("bytes") or 0) >= (tmp_path / "fold.db").stat().st_size > 0
        assert value("rejected_updates") == 0
        assert value("state", state="live") == 1
        assert value("batch_updates_sum") == 10
        assert (value("commit_seconds_count") or 0) >= 1
        assert value("store_errors_total") == 0
        assert value("export_age_seconds") is None
        await fold.export_to(tmp_path / "artifact")
        assert (value("export_age_seconds") or 0) >= 0
    assert value("applied_revision") is None  # closed
    metrics.forget("f")
