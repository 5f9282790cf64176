"""The export lease: a key in a bucket that one member acquires for a time by a conditional write.

The lease only avoids duplicate work. Two simultaneous exports do no harm, because the pointer
decides which artifact is published. So clocks need not agree, and the lease of a dead holder simply
expires. The lease time is the period of the rounds: after a completed round the record stays until
it expires and contains the exported cursor. The value is byte-for-byte the JSON of the Rust crate,
so both implementations can share a lease.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import msgspec

from penstock.kv.errors import AlreadyExists, BucketError, OperationFailed, RevisionMismatch

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kv.contract import KvStore, KvWriter
    from penstock.kv.kv_types import VersionToken, WatchCursor

log = logging.getLogger(__name__)


class LeaseRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of the key: the current or last holder. Times are in seconds since 1970."""

    holder_id: str
    acquired_at_unix: int
    expires_at_unix: int
    completed_cursor_hex: str | None = None
    completed_at_unix: int | None = None

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def decode_record(value: bytes) -> LeaseRecord | None:
    """Decode a record; None if it is unreadable, in which case the lease counts as free."""
    try:
        return msgspec.json.decode(value, type=LeaseRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


class ExportLease:
    """The lease on `key`, for the member with the name `holder_id`."""

    def __init__(
        self,
        store: KvStore,
        key: str,
        holder_id: str,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        writer = store.writer()
        if writer is None:
            raise OperationFailed("a lease needs a bucket it can write to", bucket=store.name)
        self._reader = store.reader()
        self._writer = writer
        self._bucket = store.name
        self._key = key
        self._holder_id = holder_id
        self._now = now

    async def try_acquire(self, ttl: float) -> LeaseGuard | None:
        """Acquire the lease for `ttl` seconds; None if another member holds it."""
        now = int(self._now())
        record = LeaseRecord(self._holder_id, now, now + int(ttl))
        try:
            return self._guard(record, await self._writer.create(self._key, record.encode()))
        except AlreadyExists:
            pass
        # `entry` also returns delete markers: a released lease is one.
        entry = await self._reader.entry(self._key)
        if entry is None:
            return None
        there = decode_record(entry.value)
        if there is not None and there.expires_at_unix > now:
            return None
        try:
            version = await self._writer.update(self._key, record.encode(), entry.version)
        except (RevisionMismatch, AlreadyExists):
            return None
        return self._guard(record, version)

    async def current(self) -> LeaseRecord | None:
        """Return the record of the last round; None if there was none or it was released."""
        entry = await self._reader.get(self._key)
        if entry is None:
            return None
        record = decode_record(entry.value)
        if record is None:
            raise OperationFailed(f"{self._key} is no lease", bucket=self._bucket)
        return record

    def _guard(self, record: LeaseRecord, version: VersionToken) -> LeaseGuard:
        return LeaseGuard(self._writer, self._key, record, version, self._now)


class LeaseGuard:
    """An acquired lease. End it with `complete` or `abandon`; otherwise it blocks other members
    until it expires."""

    def __init__(
        self,
        writer: KvWriter,
        key: str,
        record: LeaseRecord,
        version: VersionToken,
        now: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._key = key
        self.record = record
        self._version = version
        self._now = now
        self._ended = False

    async def complete(self, cursor: WatchCursor) -> None:
        """Record the exported cursor. The lease stays until it expires, which ends the round."""
        self._ended = True
        self.record = msgspec.structs.replace(
            self.record,
            completed_cursor_hex=cursor.raw.hex(),
            completed_at_unix=int(self._now()),
        )
        try:
            await self._writer.update(self._key, self.record.encode(), self._version)
        except RevisionMismatch:
            self._note("took longer than its lease; another has it")
        except BucketError as error:
            self._note(f"is done, but could not be recorded: {error}")

    async def abandon(self) -> None:
        """Release the lease, so that any member can start a round at once."""
        self._ended = True
        try:
            await self._writer.delete_if(self._key, self._version)
        except BucketError as error:
            self._note(f"was not given back, and runs out: {error}")

    def __del__(self) -> None:
        if not self._ended:
            self._note("was forgotten; others wait until it runs out")

    def _note(self, what: str) -> None:
        log.warning("export round %s key=%s holder=%s", what, self._key, self.record.holder_id)
