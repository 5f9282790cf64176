"""`Fold` over a scripted bucket: what it survives, what it says, and how it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import (
    BatchConfig,
    Fold,
    FoldState,
    MemorySnapshot,
    StoreError,
    StoreIOError,
    StorePoisoned,
)
from penstock.fold import fold as fold_module
from penstock.kv.errors import BucketNotFound, OperationFailed
from penstock.kv.types import CaughtUp, KvUpdate, LogInfo, Scope
from support_folds import at, contents, model, put
from support_following import QUICK, folded_up_to, ready, until
from support_scripts import END, Gate, Script, WatchedStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from penstock.fold import SnapshotMeta
    from penstock.kv.types import WatchCursor

LIVE = CaughtUp()


class ScriptedBucket:
    """A `KvStore` that can be watched and listed."""

    name = "b"

    def __init__(self, script: Script) -> None:
        self._script = script

    def watcher(self) -> Any:
        return self._script

    def reader(self) -> Any:
        return self._script


def folding(script: Script, **settings: Any) -> Fold:
    settings.setdefault("backend", "memory")
    return Fold.open(ScriptedBucket(script), batch=QUICK, **settings)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fold_module, "PAUSE_SECONDS_FIRST", 0.002)
    monkeypatch.setattr(fold_module, "PAUSE_SECONDS_MAX", 0.01)


async def test_what_cannot_be_parsed_is_counted_and_told_once_for_each_key_over_restarts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[int] = []
    script = Script(
        [
            [put("a", b"x", 1), put("b", b"2", 2), LIVE, OperationFailed("no")],
            [LIVE, put("a", b"y", 3), put("c", b"z", 4)],
        ]
    )
    async with folding(script, parse=lambda update: int(update.value), apply=seen.extend) as fold:
        await folded_up_to(fold, 4)
        assert (fold.rejected, fold.status().rejected) == (3, 3)
        assert fold.count() == 3
    assert seen == [2]
    told = [one.getMessage() for one in caplog.records if "parsed" in one.getMessage()]
    assert [text.rpartition("=")[2] for text in told] == ["a", "c"]


async def test_a_watch_that_fails_or_ends_is_begun_again_behind_the_cursor() -> None:
    script = Script(
        [
            [put("a", b"1", 1), LIVE, OperationFailed("no")],
            [LIVE, put("b", b"2", 2), END],
            [LIVE, put("c", b"3", 3)],
        ]
    )
    async with folding(script) as fold:
        await folded_up_to(fold, 3)
        assert set(contents(fold.store)) == {"a", "b", "c"}
        assert fold.status().restarts == 1
        assert fold.status().error == ""
    watches = [line for line in script.asked if line.startswith("watch")]
    assert watches == ["watch 0", "watch 1", "watch 2"]


async def test_a_bucket_that_is_gone_leaves_a_fold_that_answers() -> None:
    class Gone(Script):
        is_gone = False

        async def log_info(self) -> LogInfo:
            if self.is_gone:
                raise BucketNotFound("gone", bucket="b")
            return await super().log_info()

    gate = Gate()
    script = Gone([[put("a", b"1", 1), LIVE, gate, OperationFailed("lost")]])
    async with folding(script) as fold:
        await ready(fold)
        script.is_gone = True
        gate.open()
        await until(lambda: fold.state is FoldState.STALE)
        assert fold.get("a") is not None
        assert "gone" in fold.status().error
        script.is_gone = False
        await until(lambda: fold.status().restarts > 0 and fold.state is FoldState.CATCHING_UP)


class PoisonedOnce(WatchedStore):
    """What was stored outlives its handle, which breaks once."""

    kept: list[KvUpdate] = []  # noqa: RUF012 - shared on purpose: it stands for the disk
    opened = 0
    is_poisoned = False

    @classmethod
    def open(cls, path: Path | str = "") -> Self:
        cls.opened += 1
        if cls.opened == 2:
            raise StoreIOError("not yet")
        store = cls()
        for update in cls.kept:
            MemorySnapshot.apply(store, [update], at(update.revision))
        return store

    def apply(
        self,
        batch: Sequence[KvUpdate],
        cursor: WatchCursor,
        *,
        meta: SnapshotMeta | None = None,
        **more: Any,
    ) -> None:
        cls = type(self)
        if cls.opened == 1 and any(update.key == "b" for update in batch):
            self.is_poisoned = True
        if self.is_poisoned:
            raise StorePoisoned("who knows")
        super().apply(batch, cursor, meta=meta, **more)
        cls.kept.extend(batch)


async def test_a_poisoned_store_is_opened_again_until_it_opens() -> None:
    PoisonedOnce.kept, PoisonedOnce.opened = [], 0
    script = Script([[put("a", b"1", 1), LIVE, put("b", b"2", 2)], [put("b", b"2", 2), LIVE]])
    async with folding(script, backend=PoisonedOnce) as fold:
        await folded_up_to(fold, 2)
        assert PoisonedOnce.opened == 3
        assert contents(fold.store) == model([put("a", b"1", 1), put("b", b"2", 2)])


async def test_a_fold_that_is_closed_says_so() -> None:
    script = Script([[put("a", b"1", 1), LIVE]])
    fold = folding(script)
    with pytest.raises(StoreError, match="not open"):
        fold.get("a")
    async with fold:
        await ready(fold)
        waiting = asyncio.create_task(fold.wait_for(9))
        await asyncio.sleep(0)
    await fold.close()
    assert fold.state is FoldState.CLOSED
    with pytest.raises(StoreError, match="closed"):
        await waiting
    with pytest.raises(StoreError, match="closed"):
        await fold.ready()
    with pytest.raises(StoreError, match="closed"):
        fold.get("a")


async def test_closing_flushes_what_was_received() -> None:
    script = Script([[put("a", b"1", 1), LIVE, put("b", b"2", 2)]])
    reached: list[int] = []

    class Watched(WatchedStore):
        def close(self) -> None:
            reached.append(self.cursor.rank)
            super().close()

    patient = BatchConfig(window=1000.0, max=100)
    async with Fold.open(
        ScriptedBucket(script),  # type: ignore[arg-type]
        backend=Watched,
        batch=patient,
    ):
        await script.through.wait()
    assert reached == [2]


async def test_the_lag_is_what_the_bucket_is_known_to_be_ahead() -> None:
    log = LogInfo(identity="KV_b@1", first_seq=1, last_seq=7, evicts_current=False)
    gate = Gate()
    script = Script([[put("a", b"1", 3), gate, put("a", b"2", 7), LIVE]], log)
    async with folding(script) as fold:
        await until(lambda: fold.cursor.rank == 3)
        status = fold.status()
        assert (status.lag, status.newest, status.state) == (4, 7, FoldState.CATCHING_UP)
        gate.open()
        await ready(fold)
        assert fold.status().lag == 0
        assert fold.status().scope == Scope.all().prefixes
