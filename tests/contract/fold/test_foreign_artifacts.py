"""Artifacts of another bucket, without EXTRA.json to say so: their contents do."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from penstock.fold import Fold, FoldMismatch, FoldState, LocalArtifacts, Repair
from penstock.fold.artifact.manifest import EXTRA_FILE
from penstock.kv.contract import BucketConfig
from support.folds import contents
from support.followed_folds import HEARTBEAT, QUICK, assert_same, fill, ready, until
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from pathlib import Path

    from support.kv import Maker

#: Keeps about eight values of a hundred bytes, and drops the oldest for the newest.
SMALL = BucketConfig(discard="old", max_bytes=1500)
FORMS = [None, "append-log"]


async def foreign(make: Maker, path: Path, form: str | None) -> LocalArtifacts:
    """An artifact of another bucket at revision 34."""
    other = await make()
    await fill(other, 34, 100)
    async with Fold.open(other, path / "other", batch=QUICK, heartbeat=HEARTBEAT) as fold:
        await ready(fold)
        await fold.export_to(path / "artifact", form=form)
    (path / "artifact" / EXTRA_FILE).unlink()
    return LocalArtifacts(path / "artifact")


@pytest.mark.parametrize("form", FORMS)
async def test_repair_refuses_artifact_of_another_bucket(
    form: str | None, make: Maker, tmp_path: Path
) -> None:
    source = await foreign(make, tmp_path, form)
    bucket = await make(SMALL)
    await fill(bucket, 6)
    async with Fold.open(bucket, tmp_path / "fold", batch=QUICK, heartbeat=HEARTBEAT) as fold:
        await ready(fold)
        before = contents(fold.store)
    for number in range(7, 37):
        await bucket.writer().put(f"k{number}", bytes(100))
    repair = Repair.restore(source)
    async with Fold.open(bucket, tmp_path / "fold", repair=repair, batch=QUICK) as fold:
        await until(lambda: fold.state is FoldState.STALE)
        assert "of another" in fold.error
        assert contents(fold.store) == before


@pytest.mark.parametrize("form", FORMS)
async def test_new_fold_does_not_begin_with_artifact_of_another_bucket(
    form: str | None, make: Maker, tmp_path: Path
) -> None:
    """One whose payload names its bucket is refused; of others nothing stays in the fold."""
    source = await foreign(make, tmp_path, form)
    bucket = await make()
    await fill(bucket, 40)
    fold = Fold.open(bucket, tmp_path / "fold", bootstrap=source, batch=QUICK, heartbeat=HEARTBEAT)
    async with fold, asyncio.timeout(PATIENCE_SECONDS):
        if form is None:
            with pytest.raises(FoldMismatch):
                await fold.ready()
            return
        await until(lambda: not any(key.startswith("k10") for key in contents(fold.store)))
        await ready(fold)
        await assert_same(fold, bucket)
        assert fold.status().repairs > 0
