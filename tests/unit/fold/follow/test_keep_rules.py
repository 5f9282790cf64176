"""What a fold keeps of values: shrunk, left out, keys alone; and that it remembers which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import KEYS_ONLY, Fold, FoldDigest, FoldMismatch, Keep, KvUpdate, LocalArtifacts
from penstock.fold.follow.keep_rules import keep_of
from penstock.fold.ship.fleet_status import compare_with_bucket
from penstock.kv.kv_types import CaughtUp, KvEntry, VersionToken
from support.folds import DURABLE, contents, delete, model, put
from support.followed_folds import QUICK, folded_up_to, ready
from support.scripts import Script, ScriptedBucket

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

LIVE = CaughtUp()


def first_two(update: KvUpdate) -> bytes | None:
    """Drops values that begin with x."""
    return None if update.value.startswith(b"x") else update.value[:2]


def folding(script: Script, path: Path, name: str = "sqlite", **settings: Any) -> Fold:
    kind, bucket = DURABLE[name], ScriptedBucket(script)
    settings = {"options": kind.options, "batch": QUICK} | settings
    return Fold.open(bucket, path, backend=kind.store, **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["append-log", "sqlite", "lmdb", "rocksdb"])
async def test_values_are_shrunk_and_keys_left_out_before_they_are_stored(
    name: str, tmp_path: Path
) -> None:
    updates = [put("a", b"1234", 1), put("b", b"xyz", 2), put("c", b"5", 3), delete("c", 4)]
    script = Script([[*updates, put("d", b"1234", 5), LIVE, put("d", b"x", 6)]])
    seen: list[KvUpdate] = []
    fold = folding(script, tmp_path / "fold", name, keep=first_two, apply=seen.extend)
    async with fold:
        await folded_up_to(fold, 6)
        assert contents(fold.store) == model([put("a", b"12", 1)])
        assert fold.store.meta.keep == f"{__name__}.first_two"
    # The application is given the values as they came.
    assert seen == [*updates, put("d", b"1234", 5), put("d", b"x", 6)]


async def test_keys_only_fold_has_versions_and_no_values(tmp_path: Path) -> None:
    script = Script([[put("a", b"1234", 1), put("b", b"2", 2), LIVE]])
    async with folding(script, tmp_path / "fold", keep=KEYS_ONLY) as fold:
        await ready(fold)
        assert contents(fold.store) == model([put("a", b"", 1), put("b", b"", 2)])


@pytest.mark.parametrize("before", [None, KEYS_ONLY, Keep("other", first_two)])
async def test_fold_that_keeps_something_else_is_refused_and_left_alone(
    before: Keep | None, tmp_path: Path
) -> None:
    async with folding(Script([[put("a", b"1", 1), LIVE]]), tmp_path / "fold", keep=before) as fold:
        await ready(fold)
    for keep in (None, KEYS_ONLY, Keep("other", first_two)):
        again = folding(Script([[LIVE]]), tmp_path / "fold", keep=keep)
        if keep == before:
            async with again:
                await ready(again)
                continue
        with pytest.raises(FoldMismatch, match="keep"):
            await again.__aenter__()


def test_function_needs_name() -> None:
    assert keep_of(None) is None
    assert keep_of(KEYS_ONLY) is KEYS_ONLY
    with pytest.raises(ValueError, match="name"):
        keep_of(lambda update: update.value)


async def test_artifacts_and_digests_report_what_was_kept(tmp_path: Path) -> None:
    digest = FoldDigest()
    script = Script([[put("a", b"1234", 1), LIVE]])
    fold = folding(script, tmp_path / "fold", keep=first_two, extensions=[digest])
    async with fold:
        await ready(fold)
        await fold.export_to(tmp_path / "artifact")
        assert digest.report().keep == f"{__name__}.first_two"
    source = LocalArtifacts(tmp_path / "artifact")
    same = folding(Script([[LIVE]]), tmp_path / "same", keep=first_two, bootstrap=source)
    async with same:
        assert contents(same.store) == model([put("a", b"12", 1)])
    other = folding(Script([[LIVE]]), tmp_path / "other", bootstrap=source)
    with pytest.raises(FoldMismatch):
        await other.__aenter__()


class Scanned(ScriptedBucket):
    """A bucket whose values can be read."""

    def __init__(self, script: Script, entries: list[KvEntry]) -> None:
        super().__init__(script)
        self._entries = entries

    def reader(self) -> Any:
        return self

    async def scan(self, prefix: str = "") -> AsyncIterator[KvEntry]:
        for entry in self._entries:
            yield entry


@pytest.mark.parametrize("keep", [KEYS_ONLY, Keep("mine", first_two)])
async def test_comparison_with_bucket_knows_what_was_kept(keep: Keep, tmp_path: Path) -> None:
    script = Script([[put("a", b"1234", 1), put("b", b"xyz", 2), LIVE]])
    there = [KvEntry("a", b"1234", VersionToken.of(1)), KvEntry("b", b"xyz", VersionToken.of(2))]
    newer = [there[0], KvEntry("b", b"xyz", VersionToken.of(9))]
    async with folding(script, tmp_path / "fold", keep=keep) as fold:
        await ready(fold)
        for given in (keep, None):
            bucket: Any = Scanned(script, there)
            assert (await compare_with_bucket(fold.store, bucket, keep=given)).agree
        found = await compare_with_bucket(fold.store, Scanned(script, newer))  # type: ignore[arg-type]
        assert found.agree is (keep is not KEYS_ONLY)
        gone = await compare_with_bucket(fold.store, Scanned(script, []))  # type: ignore[arg-type]
        assert gone.extra > 0
