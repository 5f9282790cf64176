"""The watch loop over a scripted bucket: when it applies, in which order, what it never says."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import (
    ApplyError,
    BatchConfig,
    Exports,
    Observer,
    Repair,
    RepairRefused,
    StorePoisoned,
    WatchError,
)
from penstock.fold.follow.batch_commit import FAILURES_MAX
from penstock.kv.errors import OperationFailed
from penstock.kv.kv_types import Bookmark, CaughtUp, LogInfo
from support.folds import at, contents, model, put
from support.scripts import END, Gate, Script, WatchedStore, run

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvUpdate, WatchCursor

LIVE = CaughtUp()


def updates(first: int, count: int) -> list[KvUpdate]:
    return [put(f"k{number}", b"v", number) for number in range(first, first + count)]


# -- when a batch is applied


async def test_full_batch_is_applied() -> None:
    store = WatchedStore()
    cursor = await run(Script([[LIVE, *updates(1, 7), END]]), store=store)
    assert store.commits[-3:] == [
        (["k1", "k2", "k3"], 3),
        (["k4", "k5", "k6"], 6),
        (["k7"], 7),
    ]
    assert cursor == at(7)


async def test_until_it_has_caught_up_fold_takes_larger_steps() -> None:
    store = WatchedStore()
    await run(Script([[*updates(1, 6), LIVE, *updates(7, 3), END]]), store=store)
    assert [len(keys) for keys, _ in store.commits] == [5, 1, 3]


async def test_batch_is_applied_when_its_window_ends() -> None:
    store, stop = WatchedStore(), asyncio.Event()
    script = Script([[LIVE, *updates(1, 2)]])

    def applied(cursor: WatchCursor) -> None:
        if cursor == at(2):
            stop.set()

    await run(script, store=store, on_applied=applied, stop=stop, batch=BatchConfig(window=0.01))
    assert store.cursor == at(2)


async def test_window_begins_with_update_that_parse_has_no_use_for() -> None:
    """And it moves the cursor: a run of keys that do not matter holds nothing up."""
    store, stop = WatchedStore(), asyncio.Event()
    seen: list[list[Any]] = []
    await run(
        Script([[LIVE, *updates(1, 2)]]),
        store=store,
        parse=lambda update: None,
        apply=seen.append,
        on_applied=lambda cursor: stop.set(),
        stop=stop,
        batch=BatchConfig(window=0.01, max=2),
    )
    assert (seen, store.cursor, store.count()) == ([], at(2), 2)


async def test_catching_up_flushes_and_the_end_of_watch_does() -> None:
    store = WatchedStore()
    await run(Script([[*updates(1, 1), LIVE, *updates(2, 1), END]]), store=store)
    assert [cursor for _, cursor in store.commits] == [1, 2]


async def test_watch_that_fails_is_flushed_before_its_error_comes_out() -> None:
    store = WatchedStore()
    with pytest.raises(OperationFailed):
        await run(Script([[LIVE, *updates(1, 2), OperationFailed("no")]]), store=store)
    assert store.cursor == at(2)


async def test_stop_flushes_what_was_received_and_drops_what_was_not() -> None:
    store, stop, gate = WatchedStore(), asyncio.Event(), Gate()
    script = Script([[LIVE, *updates(1, 2), gate, *updates(3, 1)]])
    running = asyncio.create_task(run(script, store=store, stop=stop))
    await gate.reached.wait()
    stop.set()
    gate.open()
    assert await running == at(2)
    assert script.asked == ["watch 0", "unwatch"]


async def test_cancelled_loop_flushes_too() -> None:
    store = WatchedStore()
    script = Script([[LIVE, *updates(1, 2)]])
    running = asyncio.create_task(run(script, store=store))
    await script.through.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert store.cursor == at(2)


async def test_bookmark_moves_cursor_without_data() -> None:
    store = WatchedStore()
    await run(Script([[*updates(1, 1), LIVE, Bookmark(at(9)), END]]), store=store)
    assert store.commits == [(["k1"], 1), ([], 9)]


async def test_update_without_revision_is_folded_and_moves_no_cursor() -> None:
    store = WatchedStore()
    events = [put("a", b"1", 4), put("b", b"2"), LIVE, put("c", b"3"), END]
    assert await run(Script([events]), store=store) == at(4)
    assert store.commits == [(["a", "b"], 4), (["c"], 4)]


# -- what the application sees


async def test_apply_comes_before_store_and_cursor_last() -> None:
    store = WatchedStore()
    order: list[object] = []

    async def apply(batch: list[KvUpdate]) -> None:
        order.append(("apply", len(batch), store.cursor.rank))

    await run(
        Script([[LIVE, *updates(1, 4), END]]),
        store=store,
        apply=apply,
        on_applied=lambda cursor: order.append(("at", cursor.rank, store.cursor.rank)),
    )
    assert order == [("apply", 3, 0), ("at", 3, 3), ("apply", 1, 3), ("at", 4, 4)]


async def test_update_that_cannot_be_parsed_is_kept_and_passed_over() -> None:
    store = WatchedStore()
    seen: list[int] = []
    events = [put("a", b"1", 1), put("b", b"x", 2), put("c", b"3", 3), END]
    await run(
        Script([events]),
        store=store,
        parse=lambda update: int(update.value),
        apply=seen.extend,
    )
    assert seen == [1, 3]
    assert store.count() == 3


async def test_exception_of_apply_ends_watch_without_moving_cursor() -> None:
    store = WatchedStore()

    def apply(batch: list[KvUpdate]) -> None:
        raise KeyError("mine")

    with pytest.raises(ApplyError) as raised:
        await run(Script([[LIVE, *updates(1, 3)]]), store=store, apply=apply)
    assert isinstance(raised.value.__cause__, KeyError)
    assert store.count() == 0
    assert not store.cursor


async def test_apply_can_be_tried_again_until_it_succeeds() -> None:
    store = WatchedStore()
    tries: list[int] = []

    def apply(batch: list[KvUpdate]) -> None:
        tries.append(len(batch))
        if len(tries) < 3:
            raise OSError("not now")

    await run(
        Script([[LIVE, *updates(1, 3), END]]), store=store, apply=apply, on_apply_error="retry"
    )
    assert tries == [3, 3, 3]
    assert store.cursor == at(3)


async def test_application_without_store_begins_after_its_cursor() -> None:
    seen: list[str] = []
    reached: list[int] = []
    script = Script([[LIVE, *updates(6, 2), END]])
    cursor = await run(
        script,
        cursor=at(5),
        apply=lambda batch: seen.extend(one.key for one in batch),
        on_applied=lambda cursor: reached.append(cursor.rank),
    )
    assert (seen, reached, cursor) == (["k6", "k7"], [7], at(7))
    assert script.asked[0] == "watch 5"


async def test_without_store_gap_is_error_or_all_is_read_again() -> None:
    log = LogInfo(identity="KV_b@1", first_seq=8, last_seq=9, evicts_current=False)
    with pytest.raises(RepairRefused):
        await run(Script([[END]], log), cursor=at(5))
    script = Script([[END]], log)
    await run(script, cursor=at(5), repair=Repair.none())
    assert script.asked[0] == "watch 0"


# -- a store that refuses


@pytest.mark.parametrize("refusals", [1, FAILURES_MAX - 1])
async def test_refused_batch_stays_in_front_and_is_tried_again(
    refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.fold.follow.watch_loop.RETRY_SECONDS_MAX", 0.001)
    store, stop = WatchedStore(), asyncio.Event()
    store.refusals = refusals
    reached: list[tuple[int, int]] = []
    script = Script([[LIVE, *updates(1, 7)]])

    def applied(cursor: WatchCursor) -> None:
        reached.append((cursor.rank, store.cursor.rank))
        if cursor.rank >= 5:
            stop.set()

    await run(script, store=store, on_applied=applied, stop=stop)
    # Nothing is reported that the store does not have, and nothing was lost.
    assert all(said == stored for said, stored in reached)
    assert contents(store) == model(updates(1, store.cursor.rank))
    assert store.cursor.rank >= 5


async def test_store_that_keeps_refusing_ends_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.fold.follow.watch_loop.RETRY_SECONDS_MAX", 0.001)
    store = WatchedStore()
    store.refusals = FAILURES_MAX
    reached: list[WatchCursor] = []
    with pytest.raises(WatchError, match=f"{FAILURES_MAX} times"):
        await run(Script([[LIVE, *updates(1, 3)]]), store=store, on_applied=reached.append)
    assert reached == []
    assert store.refusals == 0


async def test_poisoned_store_is_not_asked_again() -> None:
    store = WatchedStore()
    store.refusals, store.error = 2, lambda: StorePoisoned("who knows")
    with pytest.raises(StorePoisoned):
        await run(Script([[LIVE, *updates(1, 3)]]), store=store)
    assert store.refusals == 1


async def test_stop_that_cannot_flush_reports_only_what_store_has() -> None:
    store, stop = WatchedStore(), asyncio.Event()
    script = Script([[LIVE, *updates(1, 3), *updates(4, 1)]])
    running = asyncio.create_task(run(script, store=store, stop=stop))
    await script.through.wait()
    store.refusals = 1
    stop.set()
    assert await running == at(3) == store.cursor


# -- observers


class Diary(Observer):
    def __init__(self) -> None:
        self.lines: list[object] = []
        self.fails = 0

    def before_commit(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        if self.fails:
            self.fails -= 1
            raise ValueError("not yet")
        self.lines.append(("before", [one.key for one in updates], store.cursor.rank))

    def applied(
        self, store: SnapshotStore, updates: Sequence[KvUpdate], cursor: WatchCursor
    ) -> None:
        self.lines.append(("after", len(updates), store.cursor.rank))
        raise RuntimeError("of no consequence")


async def test_observers_see_each_commit_from_both_sides() -> None:
    store, diary = WatchedStore(), Diary()
    await run(Script([[*updates(1, 2), LIVE, END]]), store=store, observers=[diary])
    assert diary.lines == [("before", ["k1", "k2"], 0), ("after", 2, 2)]


async def test_observer_that_refuses_holds_batch_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.fold.follow.watch_loop.RETRY_SECONDS_MAX", 0.001)
    store, diary, stop = WatchedStore(), Diary(), asyncio.Event()
    diary.fails = 2
    await run(
        Script([[*updates(1, 5)]]),
        store=store,
        observers=[diary],
        stop=stop,
        on_applied=lambda cursor: stop.set(),
    )
    assert diary.fails == 0
    assert store.commits == [([f"k{number}" for number in range(1, 6)], 5)]


# -- exports


async def test_export_has_all_that_was_received_before_it(tmp_path: Path) -> None:
    store, stop, exports = WatchedStore(), asyncio.Event(), Exports()
    script = Script([[LIVE, *updates(1, 2)]])
    running = asyncio.create_task(run(script, store=store, stop=stop, exports=exports))
    await script.through.wait()
    manifest = await exports.export_to(tmp_path / "artifact")
    assert manifest.cursor == at(2)
    with pytest.raises(Exception, match="exists"):
        await exports.export_to(tmp_path / "artifact")
    stop.set()
    assert await running == at(2)
    exports.close()
    with pytest.raises(Exception, match="closed"):
        await exports.export_to(tmp_path / "another")


async def test_stop_is_served_before_exports_and_events(tmp_path: Path) -> None:
    store, stop, exports, gate = WatchedStore(), asyncio.Event(), Exports(), Gate()
    script = Script([[LIVE, *updates(1, 1), gate, *updates(2, 1)]])
    running = asyncio.create_task(run(script, store=store, stop=stop, exports=exports))
    await gate.reached.wait()
    asked = asyncio.create_task(exports.export_to(tmp_path / "artifact"))
    gate.open()
    stop.set()
    assert await running == at(1)
    exports.close()
    with pytest.raises(Exception, match="closed"):
        await asked
