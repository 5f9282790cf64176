"""Blocking wrapper around `Publisher` for code without an event loop.

A thread sends, keeps the connection alive and reads replies while the caller prepares the next
rows. Row numbers are those of `Publisher`: `publish` returns the number of its first row, and a
refusal carries the number of its row. Errors and guarantees are those of `Publisher`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from penstock.bulk.loop_thread import LoopThread
from penstock.bulk.publish_frames import encode

if TYPE_CHECKING:
    from penstock.bulk.bulk_publisher import Publisher, PublishRefusal, Repeat
    from penstock.bulk.publish_frames import Values
    from penstock.bulk.wire_reader import ServerItem

#: Size of one write to the socket: large enough to amortize the thread switch.
ROWS_PER_WRITE: Final = 2048
BYTES_PER_WRITE: Final = 512 << 10


class BlockingPublisher:
    """A context manager that owns the thread and its publisher."""

    def __init__(self, publisher: Publisher) -> None:
        self._publisher = publisher
        self._thread = LoopThread("penstock bulk publisher")

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._thread.call(self._publisher.open())
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect and end the thread; a second call has no effect."""
        try:
            if self._thread.is_running:
                self._thread.call(self._publisher.close())
        finally:
            self._thread.close()

    @property
    def duplicates(self) -> int:
        return self._publisher.duplicates

    @property
    def oldest_number(self) -> int:
        return self._publisher.oldest_number

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
        common: bytes = b"",
    ) -> int:
        """Send every row; return the number of the first. `drain` waits for the replies.

        `common` is a block of header lines added to every row.
        """
        publisher = self._publisher
        number = publisher.next_number
        row = 0
        while row < subjects.count:
            frames = encode(
                subjects,
                payloads,
                ids=ids,
                lines=lines,
                common=common,
                start=row,
                first=number + row,
                inbox=publisher.inbox,
                rows_max=ROWS_PER_WRITE,
                bytes_max=BYTES_PER_WRITE,
                payload_bytes_max=publisher.payload_bytes_max,
            )
            self._thread.call(publisher.send(frames))
            row += frames.count
        return number

    def drain(self) -> None:
        """Wait until every row has a reply."""
        self._thread.call(self._publisher.drain())

    def take_refused(self) -> list[PublishRefusal]:
        """Return the refusals since the last call."""
        return self._publisher.take_refused()

    def take_repeats(self) -> list[Repeat]:
        """Return the duplicates since the last call; see `Publisher.take_repeats`."""
        return self._thread.call(self._publisher.take_repeats())

    def take_stored(self) -> list[tuple[int, int]]:
        """Return the sequences stored since the last call; see `Publisher.take_stored`."""
        return self._thread.call(self._publisher.take_stored())

    def ask(
        self, subject: str, payload: bytes = b"", *, header: bytes = b"", before: bytes = b""
    ) -> ServerItem:
        """See `Publisher.ask`."""
        return self._thread.call(
            self._publisher.ask(subject, payload, header=header, before=before)
        )
