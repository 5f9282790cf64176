"""What a bucket can do, cut into capabilities, so that a part is given only what it needs.

Protocols and settings only: the bucket on a NATS server is in `penstock.kv.bucket`, and tests may
put one in memory in its place. Methods raise the errors of `penstock.kv.errors` and no others.
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
    """How a bucket is made; one that exists stays as it is."""

    history: int = 1
    max_age: float | None = None
    """Seconds a value is kept."""
    max_bytes: int | None = None
    max_value_size: int | None = None
    replicas: int = 1
    storage: Literal["file", "memory"] = "file"
    discard: Literal["new", "old"] = "new"
    """`new` refuses writes when the bucket is full, `old` drops the oldest values."""
    allow_msg_ttl: bool = False
    marker_ttl: float | None = None
    """Seconds a marker stays that tells watchers of a value that expired."""
    allow_direct: bool = True
    allow_rollup: bool = True
    deny_delete: bool = True
    empty_value_is_delete: bool = False
    """Read an empty value as a delete, as buckets written by others may mean it."""

    def __post_init__(self) -> None:
        if not 1 <= self.history <= HISTORY_MAX:
            raise ValueError(f"history is 1 to {HISTORY_MAX}, not {self.history}")


class Capabilities(Struct, frozen=True, kw_only=True):
    """What to expect of the buckets of a connection."""

    streaming_watch: bool = True
    prefix_watch: bool = True
    cas: bool = True
    purge: bool = True
    ttl: bool = False
    transactions: bool = False
    global_ordering: bool = False
    max_value_size: int = 0
    """0 if there is no limit, or it is not known."""


class KvKeys(Protocol):
    """Lists keys; all that a repair asks of a reader."""

    def keys(self, prefix: str = "") -> AsyncIterator[str]:
        """Each key that has a value."""
        ...


class KvReader(KvKeys, Protocol):
    """Reads keys."""

    async def get(self, key: str) -> KvEntry | None:
        """The value of a key; None if it has none or was deleted."""
        ...

    async def entry(self, key: str) -> KvEntry | None:
        """The newest record of a key as it is, markers of deletes (with an empty value) too."""
        ...

    def scan(self, prefix: str = "") -> AsyncIterator[KvEntry]:
        """Each key with its value, ascending by revision; one written meanwhile may come again."""
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
        """Every change in scope behind a cursor, or first what is there now.

        `identity` is that of the log the cursor came from, where the caller knows it; `losses` and
        `records` are what the log said then: `ValuesLost` once it says that values are missing.
        """
        ...

    async def log_info(self) -> LogInfo: ...


class KvWriter(Protocol):
    """Writes keys."""

    async def put(self, key: str, value: bytes) -> VersionToken: ...

    async def create(self, key: str, value: bytes) -> VersionToken:
        """`AlreadyExists` if the key has a value."""
        ...

    async def update(self, key: str, value: bytes, expected: VersionToken) -> VersionToken:
        """`RevisionMismatch` if the key has another version."""
        ...

    async def delete(self, key: str) -> VersionToken:
        """The version of the marker, which is true as the crate's answer always is."""
        ...

    async def delete_if(self, key: str, expected: VersionToken) -> VersionToken:
        """`RevisionMismatch` if the key has another version."""
        ...


class KvTtl(KvWriter, Protocol):
    """Writes keys that go by themselves."""

    async def create_with_ttl(self, key: str, value: bytes, ttl: float) -> VersionToken: ...


class KvPurge(KvWriter, Protocol):
    """Removes keys with their history."""

    async def purge(self, key: str, *, marker_ttl: float | None = None) -> None: ...


class KvStore(Protocol):
    """A bucket; None where it lacks a capability."""

    @property
    def name(self) -> str: ...
    def reader(self) -> KvReader: ...
    def watcher(self) -> KvWatcher | None: ...
    def writer(self) -> KvWriter | None: ...
    def ttl_writer(self) -> KvTtl | None: ...
    def purger(self) -> KvPurge | None: ...


class Connection(Protocol):
    """The way to buckets."""

    async def connect(self) -> None: ...
    async def close(self) -> None: ...

    def is_healthy(self) -> bool:
        """Whether the server was there when last heard of; asks nobody."""
        ...

    async def bucket(self, name: str, config: BucketConfig | None = None) -> KvStore:
        """A bucket that exists, or, if a configuration is given, one made with it."""
        ...

    def capabilities(self) -> Capabilities: ...
