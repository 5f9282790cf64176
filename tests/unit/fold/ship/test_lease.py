"""The lease: one of many wins, for a time; what is there is never trusted to be well formed."""

from __future__ import annotations

import asyncio
import gc
import logging
from typing import TYPE_CHECKING

import pytest

from penstock.fold import ExportLease, LeaseRecord
from penstock.fold.ship.lease import decode_record
from penstock.kv.errors import OperationFailed, OperationTimeout
from support.folds import at
from support.memory_bucket import MemoryBucket

if TYPE_CHECKING:
    from penstock.fold import LeaseGuard

KEY = "export.lease"
START = 1_718_000_000.0
TTL = 300.0
TAKEN = b'{"holder_id":"node-42","acquired_at_unix":1718000000,"expires_at_unix":1718000300}'
DONE = TAKEN[:-1] + b',"completed_cursor_hex":"0000000000000004","completed_at_unix":1718000010}'


class Clock:
    """Stands until it is set."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def bucket() -> MemoryBucket:
    return MemoryBucket()


@pytest.fixture
def lease(bucket: MemoryBucket, clock: Clock) -> ExportLease:
    return ExportLease(bucket, KEY, "node-42", now=clock)


async def value(bucket: MemoryBucket) -> bytes:
    entry = await bucket.get(KEY)
    assert entry is not None
    return entry.value


async def won(lease: ExportLease) -> LeaseGuard:
    guard = await lease.try_acquire(TTL)
    assert guard is not None
    return guard


async def test_value_is_that_of_crate_byte_for_byte(
    bucket: MemoryBucket, lease: ExportLease, clock: Clock
) -> None:
    guard = await won(lease)
    assert await value(bucket) == TAKEN
    clock.now += 10.9
    await guard.complete(at(4))
    assert await value(bucket) == DONE
    assert await lease.current() == guard.record == decode_record(DONE)


async def test_another_waits_until_lease_runs_out(
    bucket: MemoryBucket, lease: ExportLease, clock: Clock
) -> None:
    other = ExportLease(bucket, KEY, "node-7", now=clock)
    await (await won(lease)).complete(at(4))
    clock.now += TTL - 1
    assert await other.try_acquire(TTL) is None
    assert await lease.try_acquire(TTL) is None
    clock.now += 1
    guard = await won(other)
    assert guard.record == LeaseRecord("node-7", int(clock.now), int(clock.now + TTL))
    await guard.abandon()


async def test_round_given_back_can_begin_at_once(bucket: MemoryBucket, lease: ExportLease) -> None:
    await (await won(lease)).abandon()
    assert await lease.current() is None
    await (await won(lease)).abandon()


@pytest.mark.parametrize("garbage", [b"", b"{}", b"\xff", b"[]", TAKEN[:-2], b'{"holder_id":3}'])
async def test_unreadable_value_is_taken_over(
    bucket: MemoryBucket, lease: ExportLease, garbage: bytes
) -> None:
    bucket.set(KEY, garbage)
    with pytest.raises(OperationFailed, match="no lease"):
        await lease.current()
    await (await won(lease)).abandon()


async def test_of_two_that_take_over_at_once_one_wins(
    bucket: MemoryBucket, lease: ExportLease
) -> None:
    bucket.set(KEY, b"garbage")

    def take() -> None:
        bucket.set(KEY, TAKEN)

    bucket.meanwhile = take
    assert await lease.try_acquire(TTL) is None


async def test_of_many_that_try_at_once_one_wins(bucket: MemoryBucket, clock: Clock) -> None:
    leases = [ExportLease(bucket, KEY, f"node-{n}", now=clock) for n in range(9)]
    guards = await asyncio.gather(*(lease.try_acquire(TTL) for lease in leases))
    winners = [guard for guard in guards if guard is not None]
    assert len(winners) == 1
    await winners[0].abandon()


async def test_round_that_took_too_long_changes_nothing_of_the_next(
    bucket: MemoryBucket, lease: ExportLease, caplog: pytest.LogCaptureFixture
) -> None:
    guard = await won(lease)
    bucket.set(KEY, b"another's")
    await guard.complete(at(4))
    assert "took longer than its lease" in caplog.text
    await guard.abandon()
    assert "was not given back" in caplog.text
    assert await value(bucket) == b"another's"


async def test_completion_that_fails_is_reported_and_no_more(
    bucket: MemoryBucket, lease: ExportLease, caplog: pytest.LogCaptureFixture
) -> None:
    guard = await won(lease)

    def fail() -> None:
        raise OperationTimeout("no answer")

    bucket.meanwhile = fail
    await guard.complete(at(4))
    assert "is done, but could not be recorded" in caplog.text


async def test_guard_that_is_forgotten_is_reported(
    lease: ExportLease, caplog: pytest.LogCaptureFixture
) -> None:
    guard: LeaseGuard | None = await won(lease)
    with caplog.at_level(logging.WARNING):
        assert guard is not None
        guard = None
        gc.collect()
    assert "was forgotten" in caplog.text


def test_bucket_that_cannot_be_written_to_has_no_lease(
    bucket: MemoryBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "writer", lambda: None)
    with pytest.raises(OperationFailed, match="needs a bucket"):
        ExportLease(bucket, KEY, "node-42")


def test_fields_others_add_are_not_looked_at() -> None:
    assert decode_record(TAKEN[:-1] + b',"more":1}') == decode_record(TAKEN)
