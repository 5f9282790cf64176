"""How the loop begins and mends over a scripted bucket: in which order, and what it refuses."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from penstock.fold import (
    Observer,
    Repair,
    RepairFailed,
    RepairRefused,
    SnapshotMeta,
    WatchError,
)
from penstock.kv.errors import BucketNotFound, CursorExpired, LogReset, OperationFailed
from penstock.kv.kv_types import CaughtUp, LogInfo
from support.folds import at, contents, delete, put
from support.scripts import END, Gate, Script, WatchedStore, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvUpdate

LIVE = CaughtUp()


class Repairs(Observer):
    """Which repairs there were."""

    def __init__(self) -> None:
        self.kinds: list[str] = []

    def repaired(self, store: SnapshotStore, kind: str) -> None:
        self.kinds.append(kind)


def lossy(**changes: Any) -> LogInfo:
    fields: dict[str, Any] = {"identity": "KV_b@1", "first_seq": 50, "last_seq": 60}
    fields["evicts_current"] = False
    return LogInfo(**fields | changes)


def stored(*entries: KvUpdate, cursor: int) -> WatchedStore:
    store = WatchedStore()
    store.apply(list(entries), at(cursor))
    store.commits.clear()
    return store


async def test_deletes_are_committed_before_everything_is_read_again() -> None:
    script = Script([[put("b", b"2", 55), LIVE, END]], lossy(), listed=["b"])
    store = stored(put("a", b"1", 1), put("b", b"1", 2), put("c", b"1", 3), cursor=9)
    seen: list[str] = []
    repairs = Repairs()
    await run(
        script,
        store=store,
        repair=Repair.auto(reader=script),
        apply=lambda batch: seen.extend(f"{one.op.name} {one.key}" for one in batch),
        observers=[repairs],
    )
    assert script.asked == ["list ", "watch 0", "unwatch"]
    # Under the old cursor: a crash in between finds the same gap again.
    assert store.commits == [(["a", "c"], 9), (["b"], 55)]
    assert seen == ["DELETE a", "DELETE c", "PUT b"]
    assert repairs.kinds == ["relist"]


async def test_listing_that_fails_stops_run_and_changes_nothing() -> None:
    script = Script([[END]], lossy(), list_error=OperationFailed("no"))
    store = stored(put("a", b"1", 1), cursor=9)
    with pytest.raises(RepairFailed):
        await run(script, store=store, repair=Repair.auto(reader=script))
    assert script.asked == ["list "]
    assert (store.commits, store.cursor, store.count()) == ([], at(9), 1)


async def test_bucket_recreated_while_it_is_listed_is_listed_again() -> None:
    class Restless(Script):
        async def keys(self, prefix: str = "") -> AsyncIterator[str]:
            self.log = lossy(identity="KV_b@3")
            yield "b"

    script = Restless([[END]], lossy())
    store = stored(put("a", b"1", 1), cursor=9)
    with pytest.raises(RepairFailed, match="has changed"):
        await run(script, store=store, repair=Repair.auto(reader=script))
    assert store.count() == 1


async def test_value_of_another_log_does_not_wait_for_one_that_may_age_out() -> None:
    log = lossy(identity="KV_b@2", first_seq=1, evicts_current=True)
    script = Script([[LIVE, END]], log, listed=["a"])
    store = stored(put("a", b"1", 1), cursor=9)
    store.apply([], at(9), meta=SnapshotMeta("KV_b@1", ("",), False))
    await run(script, store=store, repair=Repair.auto(reader=script))
    assert store.count() == 0


async def test_stop_breaks_off_repair_and_leaves_gap_to_the_next_run() -> None:
    gate = Gate()

    class Slow(Script):
        async def keys(self, prefix: str = "") -> AsyncIterator[str]:
            await gate.passed()
            yield "never"

    script, stop = Slow([[END]], lossy()), asyncio.Event()
    store = stored(put("a", b"1", 1), cursor=9)
    running = asyncio.create_task(
        run(script, store=store, repair=Repair.auto(reader=script), stop=stop)
    )
    await gate.reached.wait()
    stop.set()
    assert await running == at(9)
    assert (store.commits, store.count(), script.asked) == ([], 1, [])


async def test_refused_repair_changes_nothing() -> None:
    script = Script([[END]], lossy(evicts_current=True))
    store = stored(put("a", b"1", 1), cursor=9)
    with pytest.raises(RepairRefused):
        await run(script, store=store, repair=Repair.auto(reader=script))
    assert (script.asked, store.commits, store.cursor) == ([], [], at(9))


async def test_after_reset_cursor_goes_with_new_identity_first() -> None:
    script = Script([[put("b", b"2", 1), LIVE, END]], lossy(identity="KV_b@2", first_seq=1))
    script.listed = ["b"]
    store = stored(put("a", b"1", 1), cursor=9)
    store.apply([], at(9), meta=SnapshotMeta("KV_b@1", ("",), False))
    store.commits.clear()
    await run(script, store=store, repair=Repair.auto(reader=script))
    assert store.commits == [([], 0), (["a"], 0), (["b"], 1)]
    assert store.meta.identity == "KV_b@2"


@pytest.mark.parametrize("error", [CursorExpired, LogReset])
async def test_gap_under_live_watch_is_mended_in_place(error: type[WatchError]) -> None:
    details: dict[str, Any] = {"first_seq": 50, "cursor": at(9)}
    if error is LogReset:
        details = {"old_identity": "KV_b@1", "new_identity": "KV_b@2"}
    script = Script(
        [[put("a", b"1", 1), LIVE, put("b", b"1", 2), error("gap", **details)], [LIVE, END]],
        lossy(first_seq=1),
        listed=["b"],
    )
    store = WatchedStore()
    gate = script.watches[0]
    gate.insert(3, Gate())
    running = asyncio.create_task(run(script, store=store, repair=Repair.auto(reader=script)))
    assert isinstance(gate[3], Gate)
    await gate[3].reached.wait()
    script.log = lossy(identity="KV_b@2" if error is LogReset else "KV_b@1")
    gate[3].open()
    await running
    # What was received before the gap is flushed, then what is not there any more goes.
    assert (["b"], 2) in store.commits
    assert set(contents(store)) == {"b"}
    assert script.asked == ["watch 0", "list ", "watch 0", "unwatch"]


async def test_data_without_cursor_is_repaired_as_if_all_was_lost() -> None:
    script = Script([[LIVE, END]], lossy(first_seq=1), listed=["b"])
    store = WatchedStore()
    store.apply([put("a", b"1"), delete("c")], store.cursor)
    await run(script, store=store, repair=Repair.relist(script))
    assert store.count() == 0


async def test_bucket_that_was_removed_is_reported() -> None:
    class Gone(Script):
        async def log_info(self) -> LogInfo:
            raise BucketNotFound("gone")

    with pytest.raises(BucketNotFound):
        await run(Gone(), store=WatchedStore())


async def test_eviction_flag_is_recorded_with_first_commit() -> None:
    store = WatchedStore()
    log = lossy(first_seq=1, evicts_current=True)
    await run(Script([[put("a", b"1", 1), LIVE, END]], log), store=store)
    assert store.meta.seen_evicting
    assert store.meta.scope == ("",)
    assert store.metas[0] is not None
