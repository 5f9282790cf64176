"""Those who wait for a fold: served, told when there is nothing to wait for, never in the way."""

from __future__ import annotations

import asyncio

import pytest

from penstock.fold.errors import FoldStoreError
from penstock.fold.follow.subscribers import ChangesLost, Followers
from support.folds import put


async def test_who_waits_for_a_revision_goes_on_when_it_is_there() -> None:
    followers = Followers()
    waiting = [asyncio.create_task(followers.wait_for(number)) for number in (3, 5)]
    await asyncio.sleep(0)
    followers.committed([], 4)
    await waiting[0]
    assert not waiting[1].done()
    followers.close(FoldStoreError("closed"))
    with pytest.raises(FoldStoreError, match="closed"):
        await waiting[1]
    with pytest.raises(FoldStoreError, match="closed"):
        await followers.wait_for(9)


async def test_changes_come_from_the_moment_they_were_asked_for() -> None:
    followers = Followers()
    followers.committed([put("a", b"1", 1)], 1)
    changes = followers.changes()
    followers.committed([put("b", b"2", 2)], 2)
    followers.committed([], 3)
    followers.close(FoldStoreError("closed"))
    assert [[update.key for update in batch] async for batch in changes] == [["b"]]
    assert [batch async for batch in followers.changes()] == []


async def test_a_reader_that_does_not_keep_up_is_told_and_holds_nothing_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("penstock.fold.follow.subscribers.CHANGES_WAITING_MAX", 3)
    followers = Followers()
    slow, quick = followers.changes(), followers.changes()
    for number in range(1, 6):
        followers.committed([put("k", b"v", number)], number)
        assert len(await anext(quick)) == 1
    with pytest.raises(ChangesLost):
        await anext(slow)
