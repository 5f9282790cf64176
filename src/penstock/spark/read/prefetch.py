"""Prefetch: builds the next batches in a thread while Spark consumes the current one.

A task writes a batch to the JVM and waits until it is consumed; most of the work that builds
batches is compiled code that can run meanwhile. The thread stays at most `BATCHES_AHEAD` batches
ahead.
"""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")

BATCHES_AHEAD: Final = 2
POLL_SECONDS: Final = 0.1
"""Time until the thread notices that the consumer stopped."""


class _End:
    """End of the batches, with the exception if they failed."""

    def __init__(self, failure: BaseException | None) -> None:
        self.failure = failure


def ahead(batches: Iterator[T]) -> Iterator[T]:
    """Yield the same batches in the same order, and raise the same exception at the same
    position."""
    made: queue.Queue[T | _End] = queue.Queue(BATCHES_AHEAD)
    unwanted = threading.Event()

    def give(item: T | _End) -> None:
        while not unwanted.is_set():
            try:
                return made.put(item, timeout=POLL_SECONDS)
            except queue.Full:
                continue

    def work() -> None:
        failure: BaseException | None = None
        try:
            for batch in batches:
                give(batch)
                if unwanted.is_set():
                    break
        except BaseException as error:
            failure = error
        finally:
            close = getattr(batches, "close", None)
            if close is not None:
                close()
        give(_End(failure))

    thread = threading.Thread(target=work, name="batches ahead", daemon=True)
    thread.start()
    try:
        while not isinstance(item := made.get(), _End):
            yield item
        if item.failure is not None:
            raise item.failure
    finally:
        unwanted.set()
        thread.join()
