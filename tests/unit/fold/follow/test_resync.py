"""A resync: the fold becomes what the bucket lists, and what it loses by that is kept aside."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import Fold, FoldState, FoldStoreError
from penstock.fold.follow.resume import EVICTED_DOUBT, PURGED_DOUBT
from penstock.fold.store.append_log import read
from penstock.fold.store.fold_meta import SnapshotMeta
from penstock.kv.errors import OperationFailed
from penstock.kv.kv_types import CaughtUp, LogInfo
from support.folds import DURABLE, at, contents, model, put
from support.followed_folds import QUICK, ready, until
from support.patience import PATIENCE_SECONDS
from support.scripts import Script, ScriptedBucket

if TYPE_CHECKING:
    from pathlib import Path

LIVE = CaughtUp()
#: A bucket that may drop values on its own, and began to.
EVICTING = LogInfo(identity="KV_b@1", first_seq=3, last_seq=9, evicts_current=True)


def folding(script: Script, path: Path, name: str = "sqlite") -> Fold:
    kind = DURABLE[name]
    bucket = ScriptedBucket(script)
    return Fold.open(bucket, path, backend=kind.store, options=kind.options, batch=QUICK)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["append-log", "sqlite", "lmdb", "rocksdb"])
async def test_differences_are_repaired_and_removals_kept(name: str, tmp_path: Path) -> None:
    now = [put("a", b"1", 3), put("b", b"2", 9)]
    script = Script([[*now, LIVE], [*now, LIVE]], EVICTING, listed=["b", "a"])
    async with folding(script, tmp_path / "fold", name) as fold:
        await ready(fold)
        spoilt = [put("a", b"wrong", 3), put("old", b"last copy", 2)]
        await fold.run(fold.store.apply, spoilt, at(9))
        async with asyncio.timeout(PATIENCE_SECONDS):
            done = await fold.resync()
        assert contents(fold.store) == model(now)
        assert (fold.state, fold.cursor) == (FoldState.LIVE, at(9))
    assert (done.removed, done.aside) == (1, tmp_path / "fold.aside-9")
    assert done.aside is not None
    kept = read(done.aside)
    assert kept is not None
    assert kept.entries == model([put("old", b"last copy", 2)])


@pytest.mark.parametrize(
    ("bucket", "after"),
    [
        (EVICTING, EVICTED_DOUBT),
        (LogInfo(identity="KV_b@1", first_seq=1, last_seq=9, evicts_current=False), ""),
    ],
)
async def test_resync_ends_doubt_about_purged_values(
    bucket: LogInfo, after: str, tmp_path: Path
) -> None:
    now = [put("a", b"1", 3), put("b", b"2", 9)]
    script = Script([[*now, LIVE], [*now, LIVE]], bucket, listed=["b", "a"])
    async with folding(script, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await ready(fold)
        meta = SnapshotMeta(bucket.identity, ("",), bucket.evicts_current, doubt=PURGED_DOUBT)
        await fold.run(lambda: fold.store.apply([], at(9), meta=meta))
        assert fold.status().doubt == PURGED_DOUBT
        await fold.resync()
        assert fold.status().doubt == after


async def test_fold_that_is_as_its_bucket_keeps_nothing_aside(tmp_path: Path) -> None:
    script = Script([[put("a", b"1", 3), LIVE], [put("a", b"1", 3), LIVE]], listed=["a"])
    async with folding(script, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await ready(fold)
        done = await fold.resync()
    assert (done.removed, done.aside) == (0, None)


async def test_bucket_that_cannot_be_listed_fails_resync_and_not_fold(
    tmp_path: Path,
) -> None:
    script = Script([[put("a", b"1", 3), LIVE], [LIVE]], list_error=OperationFailed("no"))
    async with folding(script, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await ready(fold)
        with pytest.raises(OperationFailed):
            await fold.resync()
        await until(lambda: fold.state is FoldState.LIVE)
        assert set(contents(fold.store)) == {"a"}
    with pytest.raises(FoldStoreError, match="not open"):
        await fold.resync()


async def test_refused_repair_can_be_forced(tmp_path: Path) -> None:
    """The last copies that the refusal protects are in the file aside."""
    async with folding(Script([[put("a", b"1", 1), LIVE]]), tmp_path / "fold") as fold:
        await ready(fold)
    script = Script([[put("b", b"2", 9), LIVE]], EVICTING, listed=["b"])
    async with folding(script, tmp_path / "fold") as fold, asyncio.timeout(PATIENCE_SECONDS):
        await until(lambda: fold.state is FoldState.STALE)
        done = await fold.resync()
        assert contents(fold.store) == model([put("b", b"2", 9)])
    assert done.aside is not None
    kept = read(done.aside)
    assert kept is not None
    assert set(kept.entries) == {"a"}
