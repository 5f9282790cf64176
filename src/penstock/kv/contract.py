"""The bucket interface, split into capabilities so that each component receives only what it uses.

This module holds protocols and settings only. `penstock.kv.bucket` implements them on a NATS
server; tests may substitute an in-memory bucket. Methods raise only the errors of
`penstock.kv.errors`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from penstock.kv.kv_types import WatchCursor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from penstock.kv.kv_types import KvEntry, LogInfo, Scope, VersionToken, WatchEvent

HISTORY_MAX = 64
HEARTBEAT_SECONDS = 5.0


class BucketConfig(Struct, frozen=True, kw_only=True):
    """Settings for a new bucket; they do not change a bucket that already exists."""

    history: int = 1
    max_age: float | None = None
    """Seconds the server keeps a value."""
    max_bytes: int | None = None
    max_value_size: int | None = None
    replicas: int = 1
    storage: Literal["file", "memory"] = "file"
    discard: Literal["new", "old"] = "new"
    """When the bucket is full, `new` rejects writes and `old` drops the oldest values."""
    allow_msg_ttl: bool = False
    marker_ttl: float | None = None
    """Seconds the server keeps the delete marker of an expired value; watchers see the marker."""
    allow_direct: bool = True
    allow_rollup: bool = True
    deny_delete: bool = True
    empty_value_is_delete: bool = False
    """Treat an empty value as a delete, for buckets whose other clients delete that way."""

    def __post_init__(self) -> None:
        if not 1 <= self.history <= HISTORY_MAX:
            raise ValueError(f"history is 1 to {HISTORY_MAX}, not {self.history}")


class Capabilities(Struct, frozen=True, kw_only=True):
    """What the buckets of a connection support."""

    streaming_watch: bool = True
    prefix_watch: bool = True
    cas: bool = True
    purge: bool = True
    ttl: bool = False
    transactions: bool = False
    global_ordering: bool = False
    max_value_size: int = 0
    """Bytes; 0 if there is no limit or the limit is unknown."""


class KvKeys(Protocol):
    """Lists keys: the only part of a reader that a repair uses."""

    def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Yield each key that has a value."""
        ...


class KvReader(KvKeys, Protocol):
    """Reads keys."""

    async def get(self, key: str) -> KvEntry | None:
        """Return the value of a key; None if it has no value or was deleted."""
        ...

    async def entry(self, key: str) -> KvEntry | None:
        """Return the newest record of a key, including delete markers, whose value is empty."""
        ...

    def scan(self, prefix: str = "") -> AsyncIterator[KvEntry]:
        """Yield keys with values by ascending revision; a key written meanwhile may repeat."""
        ...


class KvWatcher(Protocol):
    """Follows changes."""

    def watch(
        self,
        scope: Scope,
        *,
        after: WatchCursor = WatchCursor.NONE,
        identity: str | None = None,
        heartbeat: float = HEARTBEAT_SECONDS,
        losses: int | None = None,
        records: int | None = None,
    ) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """Yield every change in scope after a cursor; without a cursor, current values first.

        `identity` is the identity of the log the cursor came from, if the caller knows it. `losses`
        and `records` are the counts that log reported at the time. The watch raises `ValuesLost`
        when the current counts show that values are missing.
        """
        ...

    async def log_info(self) -> LogInfo: ...


class KvWriter(Protocol):
    """Writes keys."""

    async def put(self, key: str, value: bytes) -> VersionToken: ...

    async def create(self, key: str, value: bytes) -> VersionToken:
        """Write a key that has no value; raise `AlreadyExists` if it has one."""
        ...

    async def update(self, key: str, value: bytes, expected: VersionToken) -> VersionToken:
        """Write a key at version `expected`; raise `RevisionMismatch` if it has another one."""
        ...

    async def delete(self, key: str) -> VersionToken:
        """Delete a key and return the version of the delete marker.

        The version is truthy, like the value the Rust crate returns.
        """
        ...

    async def delete_if(self, key: str, expected: VersionToken) -> VersionToken:
        """Delete a key at version `expected`; raise `RevisionMismatch` if it has another one."""
        ...


class KvTtl(KvWriter, Protocol):
    """Writes keys that expire."""

    async def create_with_ttl(self, key: str, value: bytes, ttl: float) -> VersionToken: ...


class KvPurge(KvWriter, Protocol):
    """Removes keys with their history."""

    async def purge(self, key: str, *, marker_ttl: float | None = None) -> None: ...


class KvStore(Protocol):
    """A bucket. A method returns None if the bucket lacks that capability."""

    @property
    def name(self) -> str: ...
    def reader(self) -> KvReader: ...
    def watcher(self) -> KvWatcher | None: ...
    def writer(self) -> KvWriter | None: ...
    def ttl_writer(self) -> KvTtl | None: ...
    def purger(self) -> KvPurge | None: ...


class Connection(Protocol):
    """Opens buckets on a server."""

    async def connect(self) -> None: ...
    async def close(self) -> None: ...

    def is_healthy(self) -> bool:
        """Return whether the client is connected, from local state, without a request."""
        ...

    async def bucket(self, name: str, config: BucketConfig | None = None) -> KvStore:
        """Open a bucket. If it does not exist, create it with `config`, if given."""
        ...

    def capabilities(self) -> Capabilities: ...
