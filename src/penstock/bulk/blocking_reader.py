"""Blocking wrapper around `BulkReader` for code without an event loop.

One thread runs the event loop of all reads of this object. It reads ahead while the caller works on
a batch, up to the limits of `SubscriptionFeed`. Reads, errors and guarantees are those of
`BulkReader`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from penstock.bulk.bulk_reader import RANGE_HEARTBEAT_SECONDS
from penstock.bulk.loop_thread import LoopThread

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterator, Sequence

    from penstock.bulk.bulk_reader import BulkReader
    from penstock.bulk.bulk_requests import StreamSummary
    from penstock.bulk.record_batch import Batch


class BlockingReader:
    """A context manager that owns the thread."""

    def __init__(self, reader: BulkReader) -> None:
        self._reader = reader
        self._thread = LoopThread("penstock bulk reader")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the thread and every unfinished iterator."""
        self._thread.close()

    def stream_state(self, stream: str) -> StreamSummary:
        return self._thread.call(self._reader.stream_state(stream))

    def range(
        self,
        stream: str,
        *,
        start: int | None = None,
        stop: int | None = None,
        filters: Sequence[str] = (),
        headers_only: bool = False,
        skip_evicted: bool = False,
        heartbeat: float = RANGE_HEARTBEAT_SECONDS,
        check: Callable[[StreamSummary, int], None] | None = None,
        pulls: bool = True,
    ) -> Iterator[Batch]:
        """See `BulkReader.range`."""
        return self._batches(
            self._reader.range(
                stream,
                start=start,
                stop=stop,
                filters=filters,
                headers_only=headers_only,
                skip_evicted=skip_evicted,
                heartbeat=heartbeat,
                check=check,
                pulls=pulls,
            )
        )

    def direct(
        self, stream: str, *, start: int, stop: int, filters: Sequence[str] = (), batched: bool
    ) -> Iterator[Batch]:
        """See `BulkReader.direct`."""
        return self._batches(
            self._reader.direct(stream, start=start, stop=stop, filters=filters, batched=batched)
        )

    def first_since(self, stream: str, time_ns: int) -> int | None:
        """See `BulkReader.first_since`."""
        return self._thread.call(self._reader.first_since(stream, time_ns))

    def time_of(self, stream: str, seq: int) -> int | None:
        """See `BulkReader.time_of`."""
        return self._thread.call(self._reader.time_of(stream, seq))

    def newest_payload(self, stream: str, subject: str) -> bytes | None:
        """See `BulkReader.newest_payload`."""
        return self._thread.call(self._reader.newest_payload(stream, subject))

    def store(self, subject: str, payload: bytes, header: bytes = b"") -> int:
        """See `BulkReader.store`."""
        return self._thread.call(self._reader.store(subject, payload, header))

    def newest(
        self, stream: str, *, filters: Sequence[str] = (">",), headers_only: bool = False
    ) -> Iterator[Batch]:
        """See `BulkReader.newest`."""
        return self._batches(
            self._reader.newest(stream, filters=filters, headers_only=headers_only)
        )

    def _batches(self, batches: AsyncGenerator[Batch, None]) -> Iterator[Batch]:
        try:
            while (batch := self._thread.call(_next_or_none(batches))) is not None:
                yield batch
        finally:
            if self._thread.is_running:
                self._thread.call(_close(batches))


async def _next_or_none(batches: AsyncGenerator[Batch, None]) -> Batch | None:
    return await anext(batches, None)


async def _close(batches: AsyncGenerator[Batch, None]) -> None:
    await batches.aclose()
