"""Workers: calls of one in order and never two at once, in threads that all of them share."""

from __future__ import annotations

import asyncio
import threading

import pytest

from penstock.fold.follow.store_worker import THREADS_MAX, Worker
from support.followed_folds import fold_threads, until


async def test_calls_of_worker_are_in_order_and_alone() -> None:
    worker, done, running = Worker(), list[int](), set[int]()

    def work(number: int) -> int:
        running.add(number)
        assert running == {number}
        done.append(number)
        running.discard(number)
        return number

    assert await asyncio.gather(*(worker.run(work, n) for n in range(200))) == list(range(200))
    assert done == list(range(200))
    worker.close()


async def test_worker_that_was_never_used_holds_no_threads() -> None:
    unused, used = Worker(), Worker()
    await used.run(lambda: 1)
    used.close()
    await until(lambda: fold_threads() == 0)
    unused.close()


async def test_call_that_raises_does_not_stop_the_next() -> None:
    worker = Worker()
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 / 0)
    assert await worker.run(lambda: 1) == 1
    worker.close()


async def test_worker_that_waits_holds_up_no_other() -> None:
    slow, quick, gate = Worker(), Worker(), threading.Event()
    waiting = asyncio.create_task(slow.run(gate.wait))
    assert await quick.run(lambda: 1) == 1
    gate.set()
    assert await waiting
    slow.close()
    quick.close()


async def test_threads_are_bounded_and_end_with_the_last_worker() -> None:
    await until(lambda: fold_threads() == 0)  # those of the test before this one end by themselves
    gate = threading.Event()
    workers = [Worker() for _ in range(3 * THREADS_MAX)]
    waiting = [asyncio.create_task(worker.run(gate.wait)) for worker in workers]
    await until(lambda: fold_threads() == THREADS_MAX)
    gate.set()
    await asyncio.gather(*waiting)
    assert fold_threads() == THREADS_MAX
    for worker in workers:
        worker.close()
        worker.close()
    await until(lambda: fold_threads() == 0)
    with pytest.raises(RuntimeError, match="closed"):
        await workers[0].run(lambda: 1)
