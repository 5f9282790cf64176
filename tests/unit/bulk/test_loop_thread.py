"""An event loop in a thread: every caller gets a result, whatever becomes of the loop."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from penstock.bulk import BlockingReader, BulkReader
from penstock.bulk.errors import Closed
from penstock.bulk.loop_thread import LoopThread
from penstock.fold import BlockingFold
from penstock.fold.errors import FoldStoreError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

SECONDS = 30


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("a loop for tests")
    made.start()
    yield made
    made.close()


async def seven() -> int:
    return 7


def test_result_or_error_of_coroutine_is_passed_on(thread: LoopThread) -> None:
    async def bad() -> None:
        raise LookupError("no")

    assert thread.call(seven()) == 7
    with pytest.raises(LookupError, match="no"):
        thread.call(bad())
    with pytest.raises(TimeoutError):
        thread.call(asyncio.sleep(SECONDS), timeout=0.001)


def test_call_is_refused_before_the_start_and_after_the_end() -> None:
    thread = LoopThread("a loop for tests")
    with pytest.raises(Closed):
        thread.call(seven())
    thread.start()
    thread.close()
    thread.close()
    with pytest.raises(Closed):
        thread.call(seven())


def test_call_under_way_ends_with_thread(thread: LoopThread) -> None:
    is_waiting = threading.Event()

    async def wait() -> None:
        is_waiting.set()
        await asyncio.Event().wait()

    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(thread.call, wait())
        assert is_waiting.wait(SECONDS)
        thread.close()
        with pytest.raises(Closed):
            waiting.result(SECONDS)


def test_no_call_is_pending_after_stop() -> None:
    """Many threads call until they are refused; every call is answered or refused."""

    def call_until_refused(thread: LoopThread) -> int:
        count = 0
        while True:
            try:
                assert thread.call(seven()) == 7
            except Closed:
                return count
            count += 1

    with ThreadPoolExecutor(4) as pool:
        for _ in range(20):
            thread = LoopThread("a loop for tests")
            thread.start()
            calls = [pool.submit(call_until_refused, thread) for _ in range(4)]
            thread.call(seven())
            thread.close()
            for one in calls:
                one.result(SECONDS)


def test_generators_left_in_middle_are_ended(thread: LoopThread) -> None:
    ended = threading.Event()

    async def numbers() -> AsyncIterator[int]:
        try:
            yield 1
            yield 2
        finally:
            ended.set()

    left = numbers()

    async def first() -> int:
        return await anext(left)

    assert thread.call(first()) == 1
    thread.close()
    assert ended.is_set()


def test_unopened_fold_closes_and_refuses_reads() -> None:
    reader = BlockingReader(BulkReader.to("nats://127.0.0.1:1"))
    with pytest.raises(Closed):
        reader.stream_state("S")
    reader.close()
    fold = BlockingFold.open("nats://127.0.0.1:1/bucket", backend="memory")
    with pytest.raises(FoldStoreError, match="not open"):
        fold.ready()
    fold.close()


@pytest.mark.sockets
def test_reader_of_changes_in_another_thread_ends_when_fold_is_closed() -> None:
    fold = BlockingFold.open("nats://127.0.0.1:1/bucket", backend="memory").__enter__()
    changes = fold.changes()
    with ThreadPoolExecutor(1) as pool:
        reading = pool.submit(list, changes)
        fold.close()
        assert reading.result(SECONDS) == []
