"""`Fold` over a scripted bucket: what it survives, what it says, and how it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import (
    BatchConfig,
    Fold,
    FoldState,
    FoldStoreError,
    MemorySnapshot,
    StoreIOError,
    StorePoisoned,
)
from penstock.fold.follow import supervisor
from penstock.fold.follow.store_worker import THREADS_MAX
from penstock.kv.errors import BucketNotFound, OperationFailed
from penstock.kv.kv_types import CaughtUp, KvUpdate, LogInfo, Scope
from support.folds import at, contents, model, put
from support.followed_folds import QUICK, fold_threads, folded_up_to, ready, until
from support.patience import PATIENCE_SECONDS
from support.scripts import END, Gate, Script, ScriptedBucket, WatchedStore

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path
    from typing import Self

    from penstock.fold import SnapshotMeta
    from penstock.kv.kv_types import WatchCursor

LIVE = CaughtUp()


def folding(script: Script, **settings: Any) -> Fold:
    settings.setdefault("backend", "memory")
    return Fold.open(ScriptedBucket(script), batch=QUICK, **settings)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS_FIRST", 0.002)
    monkeypatch.setattr(supervisor, "PAUSE_SECONDS_MAX", 0.01)


async def test_unparsable_values_are_counted_and_reported_once_per_key(
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


async def test_failed_or_ended_watch_restarts_after_cursor() -> None:
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


async def test_bucket_that_was_removed_leaves_fold_that_answers() -> None:
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


async def test_poisoned_store_is_opened_again_until_it_opens() -> None:
    PoisonedOnce.kept, PoisonedOnce.opened = [], 0
    script = Script([[put("a", b"1", 1), LIVE, put("b", b"2", 2)], [put("b", b"2", 2), LIVE]])
    async with folding(script, backend=PoisonedOnce) as fold:
        await folded_up_to(fold, 2)
        assert PoisonedOnce.opened == 3
        assert contents(fold.store) == model([put("a", b"1", 1), put("b", b"2", 2)])


async def test_fold_that_is_closed_reports_it() -> None:
    script = Script([[put("a", b"1", 1), LIVE]])
    fold = folding(script)
    with pytest.raises(FoldStoreError, match="not open"):
        fold.get("a")
    async with fold:
        await ready(fold)
        waiting = asyncio.create_task(fold.wait_for(9))
        await asyncio.sleep(0)
    await fold.close()
    assert fold.state is FoldState.CLOSED
    with pytest.raises(FoldStoreError, match="closed"):
        await waiting
    with pytest.raises(FoldStoreError, match="closed"):
        await fold.ready()
    with pytest.raises(FoldStoreError, match="closed"):
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


async def test_lag_is_what_bucket_is_known_to_be_ahead() -> None:
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


async def test_fold_is_live_only_once_store_has_what_watch_brought() -> None:
    class Full(WatchedStore):
        is_full = True

        def apply(self, *given: Any, **more: Any) -> None:
            if self.is_full:
                raise StoreIOError("no space")
            super().apply(*given, **more)

    script = Script([[put("a", b"1", 1), LIVE]])
    async with folding(script, backend=Full) as fold:
        await until(lambda: fold.state is FoldState.STORE_FAILING)
        await script.through.wait()
        assert (fold.state, fold.is_healthy()) == (FoldState.STORE_FAILING, False)
        assert "no space" in fold.status().error
        Full.is_full = False
        await ready(fold)
        assert (fold.state, fold.status().error) == (FoldState.LIVE, "")


async def test_store_that_cannot_be_closed_is_error_of_fold() -> None:
    class Stuck(WatchedStore):
        def close(self) -> None:
            super().close()
            raise OSError("no")

    fold = folding(Script([[LIVE]]), backend=Stuck)
    await fold.__aenter__()
    with pytest.raises(FoldStoreError, match="closing failed"):
        await fold.close()
    assert fold.state is FoldState.CLOSED
    await fold.close()


async def test_health_is_of_state_lag_and_contact() -> None:
    log = LogInfo(identity="KV_b@1", first_seq=1, last_seq=9, evicts_current=False)
    gate = Gate()
    script = Script([[put("a", b"1", 3), LIVE, gate, OperationFailed("lost")]], log)
    async with folding(script) as fold:
        assert (fold.contact_age, fold.is_healthy()) == (None, False)
        await ready(fold)
        assert fold.is_healthy()
        assert fold.is_healthy(max_lag=6, max_age=PATIENCE_SECONDS)
        assert not fold.is_healthy(max_lag=5)
        assert not fold.is_healthy(max_age=-1.0)
        age = fold.status().contact_age
        assert age is not None
        assert age >= 0
        gate.open()
        await until(lambda: fold.state is not FoldState.LIVE)
        assert not fold.is_healthy()


async def test_live_fold_without_contact_for_three_heartbeats_is_unhealthy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The watch reconnects for up to a minute, and the fold is live meanwhile."""
    async with folding(Script([[put("a", b"1", 1), LIVE]]), heartbeat=7.0) as fold:
        await ready(fold)
        for age, healthy in ((20.9, True), (21.1, False)):
            monkeypatch.setattr(Fold, "contact_age", age)
            assert (fold.state, fold.is_healthy()) == (FoldState.LIVE, healthy)
        assert fold.is_healthy(max_age=30.0)


async def test_thousand_folds_share_few_threads() -> None:
    folds = [folding(Script([[put("a", b"%d" % n, 1), LIVE]])) for n in range(1_000)]
    for fold in folds:
        await fold.__aenter__()
    most = 0
    for number, fold in enumerate(folds):
        await ready(fold)
        entry = fold.get("a")
        assert entry is not None
        assert entry.value == b"%d" % number
        most = max(most, fold_threads())
    assert 0 < most <= THREADS_MAX
    await asyncio.gather(*(fold.close() for fold in folds))
    await until(lambda: fold_threads() == 0)
