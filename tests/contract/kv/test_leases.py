"""The lease of export rounds on real buckets: one wins, a round given back is free at once."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from penstock.fold import ExportLease
from support.folds import at

if TYPE_CHECKING:
    from penstock.kv.bucket import NatsBucket

KEY = "export.lease"
TTL = 300.0


def leases(bucket: NatsBucket, count: int, now: float) -> list[ExportLease]:
    return [ExportLease(bucket, KEY, f"node-{n}", now=lambda: now) for n in range(count)]


async def test_one_of_many_contenders_wins_every_round(bucket: NatsBucket) -> None:
    now = 1_000_000.0
    for _ in range(5):
        tried = await asyncio.gather(*(lease.try_acquire(TTL) for lease in leases(bucket, 8, now)))
        (guard,) = [one for one in tried if one is not None]
        await guard.complete(at(7))
        assert [await lease.try_acquire(TTL) for lease in leases(bucket, 2, now)] == [None, None]
        assert await leases(bucket, 1, now)[0].current() == guard.record
        now += TTL


async def test_released_round_is_won_by_one_contender(bucket: NatsBucket) -> None:
    for _ in range(3):
        tried = await asyncio.gather(
            *(lease.try_acquire(TTL) for lease in leases(bucket, 8, 1_000_000.0))
        )
        (guard,) = [one for one in tried if one is not None]
        await guard.abandon()
        assert await leases(bucket, 1, 0.0)[0].current() is None


async def test_unreadable_lease_is_taken_over_by_one(bucket: NatsBucket) -> None:
    await bucket.writer().put(KEY, b"garbage")
    tried = await asyncio.gather(
        *(lease.try_acquire(TTL) for lease in leases(bucket, 8, 1_000_000.0))
    )
    (guard,) = [one for one in tried if one is not None]
    await guard.abandon()


async def test_overtaken_holder_changes_nothing(bucket: NatsBucket) -> None:
    slow = await leases(bucket, 1, 1_000_000.0)[0].try_acquire(TTL)
    fast = await leases(bucket, 1, 1_000_000.0 + TTL)[0].try_acquire(TTL)
    assert slow is not None
    assert fast is not None
    await slow.complete(at(3))
    await slow.abandon()
    assert await leases(bucket, 1, 0.0)[0].current() == fast.record
    await fast.abandon()
