"""Those who wait for a fold: served, told when there is nothing to wait for, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from penstock.fold.errors import FoldStoreError
from penstock.fold.follow.subscribers import ChangesLost, Subscribers
from support.folds import put


async def test_waiter_for_revision_continues_when_it_arrives() -> None:
    subscribers = Subscribers()
    waiting = [asyncio.create_task(subscribers.wait_for(number)) for number in (3, 5)]
    await asyncio.sleep(0)
    subscribers.committed([], 4)
    await waiting[0]
    assert not waiting[1].done()
    subscribers.close(FoldStoreError("closed"))
    with pytest.raises(FoldStoreError, match="closed"):
        await waiting[1]
    with pytest.raises(FoldStoreError, match="closed"):
        await subscribers.wait_for(9)


async def test_changes_come_from_moment_they_were_asked_for() -> None:
    subscribers = Subscribers()
    subscribers.committed([put("a", b"1", 1)], 1)
    changes = subscribers.changes()
    subscribers.committed([put("b", b"2", 2)], 2)
    subscribers.committed([], 3)
    subscribers.close(FoldStoreError("closed"))
    assert [[update.key for update in batch] async for batch in changes] == [["b"]]
    assert [batch async for batch in subscribers.changes()] == []


async def test_reader_that_does_not_keep_up_is_reported_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.fold.follow.subscribers.CHANGES_WAITING_MAX", 3)
    subscribers = Subscribers()
    slow, quick = subscribers.changes(), subscribers.changes()
    for number in range(1, 6):
        subscribers.committed([put("k", b"v", number)], number)
        assert len(await anext(quick)) == 1
    with pytest.raises(ChangesLost):
        await anext(slow)
