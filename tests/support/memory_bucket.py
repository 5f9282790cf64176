"""A bucket in memory, with revisions and markers of deletes as a real one has them.

`meanwhile` is called before every conditional write: there a test does what another client does at
the worst moment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.kv.errors import AlreadyExists, RevisionMismatch
from penstock.kv.kv_types import KvEntry, VersionToken

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable


class MemoryBucket:
    """A `KvStore`, and its own reader and writer."""

    name = "memory"

    def __init__(self) -> None:
        self._revision = 0
        self._newest: dict[str, tuple[int, bytes | None]] = {}
        self.meanwhile: Callable[[], None] = lambda: None

    def reader(self) -> MemoryBucket:
        return self

    def writer(self) -> MemoryBucket | None:
        return self

    def watcher(self) -> None:
        return None

    def ttl_writer(self) -> None:
        return None

    def purger(self) -> None:
        return None

    async def get(self, key: str) -> KvEntry | None:
        found = await self.entry(key)
        return found if found is not None and self._newest[key][1] is not None else None

    async def entry(self, key: str) -> KvEntry | None:
        if key not in self._newest:
            return None
        revision, value = self._newest[key]
        return KvEntry(key, value or b"", VersionToken.of(revision))

    async def keys(self, prefix: str = "") -> AsyncIterator[str]:
        for key, (_, value) in list(self._newest.items()):
            if key.startswith(prefix) and value is not None:
                yield key

    async def scan(self, prefix: str = "") -> AsyncIterator[KvEntry]:
        async for key in self.keys(prefix):
            found = await self.get(key)
            if found is not None:
                yield found

    def set(self, key: str, value: bytes | None) -> VersionToken:
        """Write, whatever is there; None is a delete."""
        self._revision += 1
        self._newest[key] = (self._revision, value)
        return VersionToken.of(self._revision)

    async def put(self, key: str, value: bytes) -> VersionToken:
        return self.set(key, value)

    async def create(self, key: str, value: bytes) -> VersionToken:
        if self._newest.get(key, (0, None))[1] is not None:
            raise AlreadyExists(f"{key} has a value")
        return self.set(key, value)

    async def update(self, key: str, value: bytes, expected: VersionToken) -> VersionToken:
        self._check(key, expected)
        return self.set(key, value)

    async def delete(self, key: str) -> VersionToken:
        return self.set(key, None)

    async def delete_if(self, key: str, expected: VersionToken) -> VersionToken:
        self._check(key, expected)
        return self.set(key, None)

    def _check(self, key: str, expected: VersionToken) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()
        if self._newest.get(key, (0, None))[0] != expected.revision:
            raise RevisionMismatch(f"{key} is not at {expected.revision}", expected=expected)
