"""What tests of buckets share: a maker of buckets, and a record of what a watch told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from penstock.kv.kv_types import CaughtUp, KvUpdate
from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.kv.bucket import NatsBucket
    from penstock.kv.bucket_watcher import NatsWatcher, Watch
    from penstock.kv.contract import BucketConfig
    from penstock.kv.kv_types import WatchEvent


class Maker(Protocol):
    """Makes a bucket that goes with the test."""

    async def __call__(self, config: BucketConfig | None = None) -> NatsBucket: ...


def watching(bucket: NatsBucket) -> NatsWatcher:
    watcher = bucket.watcher()
    assert watcher is not None
    return watcher


class Seen:
    """Events of a watch so far."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch
        self.events: list[WatchEvent] = []

    async def until(self, condition: Callable[[Seen], bool]) -> Seen:
        """Read on until it holds; fail if it does not in time."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not condition(self):
                self.events += await self.watch.next_events()
        return self

    async def until_caught_up(self) -> Seen:
        return await self.until(lambda seen: CaughtUp() in seen.events)

    async def until_end(self) -> None:
        """Read on until the watch ends with an error."""
        await self.until(lambda seen: False)

    @property
    def updates(self) -> list[KvUpdate]:
        return [event for event in self.events if isinstance(event, KvUpdate)]

    @property
    def puts(self) -> list[tuple[str, bytes]]:
        return [(update.key, update.value) for update in self.updates]
