"""Queues writes on disk and sends them to the bucket when the server is reachable.

    ticket = await fold.outbox.put("customer.7", b"...")      # durable when it returns
    outcome = await fold.outbox.outcome(ticket, timeout=30)   # applied, superseded or rejected

Every write is a compare-and-set on the version the fold held when it was queued, so it never
overwrites an unknown value; nothing is merged. Invariant: a write is applied at most once, even if
the process is killed between sending it and storing its outcome. Three mechanisms ensure this: the
expected version; the message id, by which the server recognises a repeated write within its
duplicate window; and the message id in the newest record of the key. A write that was applied, then
overwritten by another client, and then sent again after the window is reported as superseded.

Writes are sent in the order they were queued. A write that cannot be sent blocks the later ones.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Protocol

from penstock.fold.errors import FoldStoreError, WaitTimeout
from penstock.fold.follow.outbox_file import Outcome, WriteResult
from penstock.kv.errors import KvError, OperationFailed, RevisionMismatch
from penstock.kv.kv_types import Op, VersionToken

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from penstock.fold.follow.outbox_file import OutboxFile, QueuedWrite
    from penstock.kv.bucket_records import LastWrite

PAUSE_SECONDS_FIRST = 0.5
PAUSE_SECONDS_MAX = 30.0

log = logging.getLogger(__name__)


class KvOnce(Protocol):
    """A writer whose repeated writes the server recognises."""

    async def write_once(
        self, key: str, value: bytes, *, op: Op, expected: int, message_id: str
    ) -> VersionToken:
        """Write a key at version `expected`; raise `RevisionMismatch` if it has another one."""
        ...

    async def last_write(self, key: str) -> LastWrite | None:
        """Return the newest record of a key; None if there is none."""
        ...


class Outbox:
    """The outbox of a fold: `open` starts sending, `close` stops it and keeps waiting writes.
    Use from one event loop."""

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
        """Needed in addition to the cancel, which a connecting client may swallow."""
        self._pause = PAUSE_SECONDS_FIRST
        self.error: Exception | None = None
        """Why the first waiting write could not be sent; None if it was not tried or was sent."""

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
        """Queue a write and return its ticket. By default it expects the fold's current version, or
        the result of the key's previous queued write. `VersionToken.of(0)` expects no value."""
        return await self._add(key, Op.PUT, value, expected)

    async def delete(self, key: str, *, expected: VersionToken | None = None) -> int:
        return await self._add(key, Op.DELETE, b"", expected)

    async def outcome(
        self,
        ticket: int,
        *,
        timeout: float | None = None,  # noqa: ASYNC109 - another error than a plain one
    ) -> Outcome:
        """Wait until a write is sent and return its outcome; raise `WaitTimeout` after `timeout`.

        The last `OUTCOMES_MAX` outcomes are stored and survive restarts.
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
        """Return the writes without an outcome, in the order they will be sent."""
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
        if not isinstance(error, KvError):
            log.error("the outbox could not send a write", exc_info=error)
        await asyncio.sleep(self._pause)
        self._pause = min(2 * self._pause, PAUSE_SECONDS_MAX)

    async def _send(self, write: QueuedWrite) -> Outcome:
        """Send a write and return its outcome; raise if the outcome is still unknown."""
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
        # The write expects no value, and the key has none: its newest record is a delete marker.
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
        except ValueError as error:  # the key is not valid in a subject
            return Outcome(WriteResult.REJECTED, reason=str(error))
        return Outcome(WriteResult.APPLIED, version)

    def _before(self, number: int) -> Outcome | None:
        with contextlib.suppress(KeyError):
            return self._file.outcome(number)
        return None
