"""A fold's access to its bucket, for writes and for reads before the fold has caught up once.

A fold follows its bucket over a read-only connection. If the fold was opened by name, its first
write or remote read connects a nats-py client, which stays open until `close`. If the fold was
opened with an open bucket, it uses that bucket. Use from one event loop.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from penstock.kv.errors import NotConnected

if TYPE_CHECKING:
    from penstock.fold.follow.open_target import FoldOrigin
    from penstock.fold.follow.write_outbox import KvOnce
    from penstock.kv.contract import KvReader, KvStore, KvWriter
    from penstock.kv.kv_connection import NatsConnection


class BucketAccess:
    """The bucket of a fold, connected on first use."""

    def __init__(self, origin: FoldOrigin) -> None:
        self._origin = origin
        self._bucket: KvStore | None = origin.bucket
        self._connection: NatsConnection | None = None
        self._lock = asyncio.Lock()

    async def writer(self) -> KvWriter:
        writer = (await self.bucket()).writer()
        if writer is None:
            raise NotConnected("the bucket cannot be written over this connection")
        return writer

    async def once_writer(self) -> KvOnce:
        """Return a writer for the outbox."""
        writer = await self.writer()
        if not hasattr(writer, "write_once"):
            raise NotConnected("the bucket does not recognise writes that are sent again")
        return cast("KvOnce", writer)

    async def reader(self) -> KvReader:
        return (await self.bucket()).reader()

    async def bucket(self) -> KvStore:
        """Return the bucket; connect if needed. After an error the next call tries again."""
        async with self._lock:
            if self._bucket is None:
                self._bucket = await self._connected()
            return self._bucket

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._bucket = None
            await connection.close()

    async def _connected(self) -> KvStore:
        from penstock.kv.kv_connection import NatsConnection

        assert self._origin.config is not None, "a bucket by name comes with its server"
        if self._connection is None:
            connection = NatsConnection(self._origin.config)
            await connection.connect()
            self._connection = connection
        return await self._connection.bucket(self._origin.name)
