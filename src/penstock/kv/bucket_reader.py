"""Reads a bucket: single keys with nats-py, listings with the bulk reader.

A listing uses its own connection and consumer and reads until nothing is pending, so a message
count cannot truncate it. A prefix need not end in a dot: the reader subscribes up to the last dot
of the prefix and filters the keys itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kv.bucket_records import (
    enclosing,
    entries_of,
    keys_of,
    last_write,
    operation,
    prefix_of,
    stream_of,
    subject_of,
)
from penstock.kv.client_errors import by_name
from penstock.kv.errors import NotConnected
from penstock.kv.kv_types import KvEntry, Op, VersionToken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from penstock.bulk.bulk_reader import BulkReader
    from penstock.bulk.record_batch import Batch
    from penstock.kv.bucket_records import LastWrite
    from penstock.kv.bucket_requests import Requests, StoredRecord


class NatsLister:
    """The listing part of a `KvReader`; uses only the bulk reader."""

    def __init__(self, bucket: str, bulk: BulkReader | None, *, empty_is_delete: bool) -> None:
        self._bucket = bucket
        self._bulk = bulk
        self._empty_is_delete = empty_is_delete
        self._skipped = len(prefix_of(bucket))

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        seen: set[str] = set()
        async for keys in self.key_batches(prefix):
            for key in keys:
                if key not in seen:
                    seen.add(key)
                    yield key

    async def key_batches(self, prefix: str = "") -> AsyncIterator[list[str]]:
        """Yield batches of keys as they arrive; a key written meanwhile may repeat."""
        async for batch in self._listing(prefix, headers_only=True):
            keys = keys_of(batch, self._skipped, empty_is_delete=self._empty_is_delete)
            yield [key for key in keys if key.startswith(prefix)]

    async def revision_batches(self, prefix: str = "") -> AsyncIterator[list[tuple[str, int]]]:
        """Yield batches of keys with their revisions; a key written meanwhile may repeat."""
        async for batch in self._listing(prefix, headers_only=True):
            revisions = {subject[self._skipped :]: seq for subject, seq, _, _, _ in batch.rows()}
            keys = keys_of(batch, self._skipped, empty_is_delete=self._empty_is_delete)
            yield [(key, revisions[key]) for key in keys if key.startswith(prefix)]

    async def scan(self, prefix: str = "") -> AsyncIterator[KvEntry]:
        async for batch in self._listing(prefix, headers_only=False):
            for entry in entries_of(batch, self._skipped, empty_is_delete=self._empty_is_delete):
                if entry.key.startswith(prefix):
                    yield entry

    async def _listing(self, prefix: str, *, headers_only: bool) -> AsyncIterator[Batch]:
        if self._bulk is None:
            raise NotConnected(
                "a connection around a client of your own cannot open another to list",
                bucket=self._bucket,
            )
        filters = [f"{prefix_of(self._bucket)}{enclosing(prefix)}>"]
        with by_name(self._bucket):
            async for batch in self._bulk.newest(
                stream_of(self._bucket), filters=filters, headers_only=headers_only
            ):
                yield batch


class NatsReader(NatsLister):
    """A `KvReader`."""

    def __init__(
        self,
        bucket: str,
        requests: Requests,
        bulk: BulkReader | None,
        *,
        direct: bool,
        empty_is_delete: bool,
    ) -> None:
        super().__init__(bucket, bulk, empty_is_delete=empty_is_delete)
        self._requests = requests
        self._direct = direct

    async def get(self, key: str) -> KvEntry | None:
        stored = await self._newest(key)
        if stored is None or operation(stored.header)[0] is not Op.PUT:
            return None
        if self._empty_is_delete and not stored.payload:
            return None
        return KvEntry(key, stored.payload, VersionToken.of(stored.seq))

    async def entry(self, key: str) -> KvEntry | None:
        stored = await self._newest(key)
        if stored is None:
            return None
        return KvEntry(key, stored.payload, VersionToken.of(stored.seq))

    async def is_free(self, key: str) -> int | None:
        """Return the revision that a create must expect, 0 if the key has no record.

        None if the key has a value.
        """
        stored = await self._newest(key)
        if stored is None:
            return 0
        is_deleted = operation(stored.header)[0] is not Op.PUT
        if is_deleted or (self._empty_is_delete and not stored.payload):
            return stored.seq
        return None

    async def last_write(self, key: str) -> LastWrite | None:
        stored = await self._newest(key)
        return None if stored is None else last_write(stored.seq, stored.header)

    async def _newest(self, key: str) -> StoredRecord | None:
        subject = subject_of(self._bucket, key)
        return await self._requests.newest(stream_of(self._bucket), subject, direct=self._direct)
