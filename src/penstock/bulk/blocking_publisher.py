"""The bulk publisher for code without an event loop: columns go in, a thread sends and listens.

The thread keeps the connection alive and reads answers while the caller makes the next rows.
Rows keep their numbers: the first row of a `publish` has the number it returns, and a refusal names
one. The same errors and guarantees as `Publisher`; nothing is decided here.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from penstock.bulk.frames import encode

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from penstock.bulk.frames import Values
    from penstock.bulk.intake import Heard
    from penstock.bulk.publishing import Publisher, Refusal

#: One write to the socket: large enough to be worth a change of threads.
ROWS_PER_WRITE: Final = 2048
BYTES_PER_WRITE: Final = 512 << 10

T = TypeVar("T")


class BlockingPublisher:
    """A context manager that owns the thread."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="penstock bulk publisher", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._wait(self._publisher.open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._loop.is_closed():
            return
        self._wait(self._publisher.close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def duplicates(self) -> int:
        return self._publisher.duplicates

    @property
    def payload_bytes_max(self) -> int:
        return self._publisher.payload_bytes_max

    def publish(
        self,
        subjects: Values,
        payloads: Values,
        *,
        ids: Values | None = None,
        lines: Values | None = None,
    ) -> int:
        """Send every row; the number of the first. Answers come with `settle`."""
        publisher = self._publisher
        number = publisher.next_number
        row = 0
        while row < subjects.count:
            frames = encode(
                subjects,
                payloads,
                ids=ids,
                lines=lines,
                start=row,
                first=number + row,
                inbox=publisher.inbox,
                rows_max=ROWS_PER_WRITE,
                bytes_max=BYTES_PER_WRITE,
                payload_bytes_max=publisher.payload_bytes_max,
            )
            self._wait(publisher.send(frames))
            row += frames.count
        return number

    def settle(self) -> None:
        """Wait until every row is answered."""
        self._wait(self._publisher.settle())

    def take_refused(self) -> list[Refusal]:
        """Refusals since this was last asked."""
        return self._publisher.take_refused()

    def ask(
        self, subject: str, payload: bytes = b"", *, header: bytes = b"", before: bytes = b""
    ) -> Heard:
        """As `Publisher.ask`."""
        return self._wait(self._publisher.ask(subject, payload, header=header, before=before))

    def _wait(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()
