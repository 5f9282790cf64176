"""Writes that are queued while the server is out of reach, and sent when it is not.

    ticket = await fold.outbox.put("customer.7", b"...")      # durable when it returns
    outcome = await fold.outbox.outcome(ticket, timeout=30)   # applied, superseded or rejected

Every write is a compare-and-set on the version the fold held when it was queued, so it never
overwrites what it did not know; nothing is merged. Invariant: a write is applied at most once, also
if the process is killed between sending and writing down the outcome. Three things see to that: the
version expected, the message id, by which the server recognises a write that is sent again within
its duplicate window, and the id in the newest record of the key. A write that was applied, then
overwritten by another client, and then asked about after the window is reported as superseded.

Writes go out in the order they were made. One that cannot be sent holds up the others.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from penstock.fold.errors import FoldStoreError, WaitTimeout
from penstock.fold.follow.outbox_file import Outcome, WriteResult
from penstock.kv.errors import FoldError, OperationFailed, RevisionMismatch
from penstock.kv.kv_types import Op, VersionToken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.fold.follow.outbox_file import OutboxFile, QueuedWrite
    from penstock.kv.bucket_records import LastWrite

PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 30.0

log = logging.getLogger(__name__)


class KvOnce(Protocol):
    """Writes that the server recognises when they are sent again."""

    async def write_once(
        self, key: str, value: bytes, *, op: Op, expected: int, message_id: str
    ) -> VersionToken:
        """`RevisionMismatch` if the key has another version."""
        ...

    async def last_write(self, key: str) -> LastWrite | None:
        """The newest record of a key; None if there is none."""
        ...


class Outbox:
    """Of one event loop; `open` starts sending, `close` stops it and keeps what waits."""

    def __init__(
        self,
        file: OutboxFile,
        writer: Callable[[], Awaitable[KvOnce]],
        held: Callable[[str], int],
    ) -> None:
        self._file = file
        self._writer = writer
        self._held = held
        self._bell = asyncio.Event()
        self._done = asyncio.Condition()
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        """Beside the cancel, which a client that is connecting may swallow."""
        self._pause = PAUSE_SECONDS_FIRST
        self.error: Exception | None = None
        """Why the first write that waits could not be sent; None if it was not tried or is out."""

    def open(self) -> None:
        self._task = asyncio.create_task(self._send_all(), name="fold outbox")

    async def close(self) -> None:
        self._is_closing = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})
        async with self._done:
            self._task = None
            self._done.notify_all()
        await asyncio.to_thread(self._file.close)

    async def put(self, key: str, value: bytes, *, expected: VersionToken | None = None) -> int:
        """Queue a write; its ticket. By default it expects what the fold has now, or the write of
        the key that was queued before. `VersionToken.of(0)` expects no value."""
        return await self._add(key, Op.PUT, value, expected)

    async def delete(self, key: str, *, expected: VersionToken | None = None) -> int:
        return await self._add(key, Op.DELETE, b"", expected)

    async def outcome(
        self,
        ticket: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - another error than a plain one
    ) -> Outcome:
        """Wait until a write is sent and return what became of it; `WaitTimeout` if it waits on.

        Outcomes are remembered over restarts, the last `OUTCOMES_MAX` of them.
        """
        waiting = asyncio.timeout(timeout)
        try:
            async with waiting, self._done:
                while True:
                    found = await asyncio.to_thread(self._file.outcome, ticket)
                    if found is not None:
                        return found
                    if self._task is None:
                        raise FoldStoreError("the fold is closed; the write waits in its outbox")
                    await self._done.wait()
        except TimeoutError:
            if not waiting.expired():
                raise
            why = f": {self.error}" if self.error is not None else ""
            raise WaitTimeout(f"write {ticket} waits in the outbox{why}") from None

    async def waiting(self) -> list[QueuedWrite]:
        """Writes without an outcome, in the order they will be sent."""
        return await asyncio.to_thread(self._file.waiting)

    # -- sending

    async def _add(self, key: str, op: Op, value: bytes, expected: VersionToken | None) -> int:
        wanted = None if expected is None else expected.revision
        if expected is not None and wanted is None:
            raise ValueError("a conditional write needs a version that is a revision")
        held = self._held(key)
        ticket = await asyncio.to_thread(self._file.add, key, op, value, wanted, held)
        self._bell.set()
        return ticket

    async def _send_all(self) -> None:
        while not self._is_closing:
            self._bell.clear()
            waiting = await asyncio.to_thread(self._file.waiting, 1)
            if not waiting:
                self._pause = PAUSE_SECONDS_FIRST
                await self._bell.wait()
                continue
            try:
                outcome = await self._send(waiting[0])
                await asyncio.to_thread(self._file.record, waiting[0].id, outcome)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                if not self._is_closing:
                    await self._rest(error)
                continue
            self.error, self._pause = None, PAUSE_SECONDS_FIRST
            async with self._done:
                self._done.notify_all()

    async def _rest(self, error: Exception) -> None:
        self.error = error
        if not isinstance(error, FoldError):
            log.error("the outbox could not send a write", exc_info=error)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)

    async def _send(self, write: QueuedWrite) -> Outcome:
        """What became of a write; raises if that cannot be said yet."""
        expected = write.expected
        if write.after is not None:
            before = await asyncio.to_thread(self._before, write.after)
            if before is None or before.result is not WriteResult.APPLIED:
                return Outcome(WriteResult.SUPERSEDED, reason="the write before it was not applied")
            expected = before.version.revision or 0
        writer = await self._writer()
        message_id = self._file.message_id(write.id)
        try:
            return await self._once(writer, write, expected, message_id)
        except RevisionMismatch as error:
            last = await writer.last_write(write.key)
            if last is not None and last.message_id == message_id:
                return Outcome(WriteResult.APPLIED, VersionToken.of(last.revision))
            if expected or last is None or not last.is_removal:
                return Outcome(WriteResult.SUPERSEDED, reason=error.reason)
        # No value was expected, and there is none: only the marker of a delete.
        try:
            return await self._once(writer, write, last.revision, message_id)
        except RevisionMismatch as error:
            return Outcome(WriteResult.SUPERSEDED, reason=error.reason)

    async def _once(
        self, writer: KvOnce, write: QueuedWrite, expected: int, message_id: str
    ) -> Outcome:
        try:
            version = await writer.write_once(
                write.key, write.value, op=write.op, expected=expected, message_id=message_id
            )
        except OperationFailed as error:
            if not error.is_final:
                raise
            return Outcome(WriteResult.REJECTED, reason=error.reason)
        except ValueError as error:  # a key that no subject can be
            return Outcome(WriteResult.REJECTED, reason=str(error))
        return Outcome(WriteResult.APPLIED, version)

    def _before(self, number: int) -> Outcome | None:
        with contextlib.suppress(KeyError):
            return self._file.outcome(number)
        return None
