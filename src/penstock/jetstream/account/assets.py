"""The registry of one account's streams, with their disk and memory usage and reservations.

Invariant: stream names are unique, subjects are disjoint. The registry knows which streams exist,
whether their subjects overlap, and how much the account's limits leave; it decides nothing about a
single stream. Handlers and recovery call `add`, `changed` and `drop`; the stream driver calls
`touch` or `recount` when a stream's size may have changed.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.api import refusals
from penstock.api.account_usage import NOTHING, tier_of
from penstock.api.rules.stream_requests import reservation_of
from penstock.api.stream_config import Storage
from penstock.jetstream.account.config_views import StreamConfigs
from penstock.jetstream.host.asset_files import file_name
from penstock.subjects.pattern_set import PatternIndex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.api.account_usage import AccountLimits
    from penstock.api.refusals import ApiError
    from penstock.api.stream_config import StreamConfig
    from penstock.base.slices import Sliced
    from penstock.jetstream.account.policy import Policy
    from penstock.jetstream.environment import Environment
    from penstock.jetstream.host.asset_files import AccountDirectory
    from penstock.jetstream.host.stream_host import StreamHost
    from penstock.jetstream.streams.batches.staged_batches import InFlight


PLENTY: Final = 1024 * 1024 * 1024
"""Bytes a stream may store between two checks of the usage, where there is no limit."""


@dataclass(slots=True)
class ServerRoom:
    """The limits and usage of the whole server, shared by its accounts. Below 0: no limit."""

    max_memory: int
    max_storage: int
    memory: int = 0
    storage: int = 0
    reserved_memory: int = 0
    reserved_storage: int = 0
    is_disk_low: bool = False
    """Whether the remaining disk space is reserved for deletions and work in progress."""
    is_configured: bool = False
    """Whether the operator set these limits; if not, they are defaults from the machine's size."""

    def promise(self, storage: Storage, n: int) -> None:
        if storage is Storage.MEMORY:
            self.reserved_memory += n
        else:
            self.reserved_storage += n

    def grow(self, storage: Storage, n: int) -> None:
        if storage is Storage.MEMORY:
            self.memory += n
        else:
            self.storage += n

    def unpromised(self, storage: Storage) -> int:
        """Return the bytes that are not yet reserved by streams."""
        if storage is Storage.MEMORY:
            return self.max_memory - self.reserved_memory
        return self.max_storage - self.reserved_storage

    def left(self, storage: Storage) -> int:
        """Return the bytes that still fit."""
        if storage is Storage.MEMORY:
            return self.max_memory - self.memory if self.max_memory >= 0 else PLENTY
        if self.is_disk_low:
            return 0
        return self.max_storage - self.storage if self.max_storage >= 0 else PLENTY

    def has(self, storage: Storage, n: int) -> bool:
        """Whether `n` more bytes fit."""
        if storage is Storage.MEMORY:
            return self.max_memory < 0 or self.memory + n <= self.max_memory
        fits = self.max_storage < 0 or self.storage + n <= self.max_storage
        return fits and not self.is_disk_low


class ListPage(NamedTuple):
    """One page of a list: length of the list, start of the page, its names."""

    total: int
    start: int
    names: list[str]


def page_start(offset: int, total: int) -> int:
    """Return an offset within the list."""
    return max(0, min(offset, total))


def _order(name: str) -> bytes:
    return name.encode(errors="surrogateescape")


class Assets:
    """The streams of one account."""

    def __init__(
        self,
        *,
        environment: Environment,
        limits: AccountLimits,
        tiers: Mapping[str, AccountLimits] | None = None,
        room: ServerRoom,
        files: AccountDirectory | None,
        policy: Policy,
        in_flight: InFlight,
        is_enabled: bool = True,
    ) -> None:
        self.environment = environment
        self.tiers: Mapping[str, AccountLimits] = {}
        """Limits by number of replicas; if set, they replace the one set for all streams."""
        self.limits = NOTHING
        """The limits that apply to existing streams: on one server each has one replica."""
        self.grant(limits, tiers or {})
        self.room = room
        self.files = files
        self.policy = policy
        self.in_flight = in_flight
        self.is_enabled = is_enabled
        self.hosts: dict[str, StreamHost] = {}
        self.unserved: dict[str, str] = {}
        """Why streams on disk cannot be served, by directory name."""
        self._held: dict[str, int] = {}
        self._touched: set[str] = set()  # streams whose size may differ from `_held`
        self._used = dict.fromkeys(Storage, 0)
        self._subjects: PatternIndex[str] = PatternIndex()
        self._names: list[bytes] = []  # sorted
        self.configs = StreamConfigs(self.hosts)
        self.is_making = False
        """Whether the files of an admitted stream are being created: no other may be added."""
        self.promised = dict.fromkeys(Storage, 0)
        """The sum of the streams' reservations, each replica counted."""
        self.api_total = 0
        self.api_errors = 0

    def grant(self, limits: AccountLimits, tiers: Mapping[str, AccountLimits]) -> None:
        """Set the limits of the account."""
        self.tiers = tiers
        self.limits = tiers.get(tier_of(1), NOTHING) if tiers else limits

    def __iter__(self) -> Iterator[StreamHost]:
        return iter(self.hosts.values())

    def __getitem__(self, name: str) -> StreamHost | ApiError:
        return self.hosts.get(name) or refusals.STREAM_NOT_FOUND

    def page(self, subject: str, offset: int, limit: int) -> Sliced[ListPage]:
        """Return a page of sorted names; with a subject, of the streams that may hold it."""
        if subject:
            found: set[str] = set()
            for name in self.streams_on(subject):
                if name is None:
                    yield
                else:
                    found.add(name)
            names = sorted(found, key=_order)
            start = page_start(offset, len(names))
            return ListPage(len(names), start, names[start : start + limit])
        total = len(self._names)
        start = page_start(offset, total)
        page = self._names[start : start + limit]
        return ListPage(total, start, [name.decode(errors="surrogateescape") for name in page])

    def streams_on(self, subject: str) -> Iterator[str | None]:
        """Yield the names of streams whose subjects overlap with this one; a name may repeat.

        Yields None where the caller may serve others, as `PatternIndex.owners_meeting` does.
        """
        return self._subjects.owners_meeting(subject)

    def missing(self, name: str) -> ApiError:
        """Return why no stream of this name is served: it is missing, or its files are unusable."""
        why = self.unserved.get(file_name(name))
        return refusals.STREAM_NOT_FOUND if why is None else refusals.STREAM_OFFLINE_REASON(err=why)

    # -- usage

    def touch(self, host: StreamHost) -> None:
        """Mark a stream as changed, so that the next usage query measures it again."""
        if self.hosts.get(host.name) is host:
            self._touched.add(host.name)

    def recount(self, host: StreamHost) -> None:
        """Measure a stream again and update the usage."""
        self._touched.discard(host.name)
        storage = host.stream.cfg.storage
        held = host.stream.store.total_bytes
        grown = held - self._held.get(host.name, 0)
        if grown:
            self._held[host.name] = held
            self._used[storage] += grown
            self.room.grow(storage, grown)

    def add(self, host: StreamHost) -> None:
        """Register a stream. It becomes visible last, after all other bookkeeping."""
        cfg = host.stream.cfg
        self.recount(host)
        self._count(cfg, 1)
        self.room.promise(cfg.storage, max(cfg.max_bytes, 0))
        bisect.insort(self._names, _order(cfg.name))
        self.hosts[cfg.name] = host

    def changed(self, host: StreamHost, old: StreamConfig) -> None:
        """Update reservations and subjects after a change of configuration."""
        cfg = host.stream.cfg
        self._promise(old, -1)
        self._promise(cfg, 1)
        before, after = set(old.subjects), set(cfg.subjects)
        for subject in before - after:
            self._subjects.remove(subject, cfg.name)
        for subject in after - before:
            self._subjects.add(subject, cfg.name)
        self.room.promise(cfg.storage, max(cfg.max_bytes, 0) - max(old.max_bytes, 0))

    def _count(self, cfg: StreamConfig, sign: int) -> None:
        """Add a configuration to the totals (sign 1), or remove it (sign -1)."""
        self._promise(cfg, sign)
        note = self._subjects.add if sign > 0 else self._subjects.remove
        for subject in set(cfg.subjects):
            note(subject, cfg.name)

    def _promise(self, cfg: StreamConfig, sign: int) -> None:
        self.promised[cfg.storage] += sign * reservation_of(cfg)

    def drop(self, host: StreamHost) -> None:
        cfg = host.stream.cfg
        del self.hosts[cfg.name]
        del self._names[bisect.bisect_left(self._names, _order(cfg.name))]
        self._count(cfg, -1)
        self._touched.discard(cfg.name)
        held = self._held.pop(cfg.name, 0)
        self._used[cfg.storage] -= held
        self.room.grow(cfg.storage, -held)
        self.room.promise(cfg.storage, -max(cfg.max_bytes, 0))

    def hold(self, storage: Storage, n: int) -> None:
        """Add `n` bytes (negative: remove them) held by streams that are being restored."""
        self._used[storage] += n
        self.room.grow(storage, n)

    @property
    def is_limited(self) -> bool:
        """Whether there are limits that any message may reach."""
        room, limits = self.room, self.limits
        is_configured = room.is_configured or limits.max_memory >= 0 or limits.max_storage >= 0
        return is_configured or room.is_disk_low

    def used(self, storage: Storage) -> int:
        """Return the bytes held; measures only the streams marked by `touch`."""
        for name in tuple(self._touched):
            self.recount(self.hosts[name])
        return self._used[storage]

    @property
    def consumers(self) -> int:
        """Return the number of consumers; may be called on any thread."""
        return sum(len(host.consumers) for host in list(self.hosts.values()))

    def room_left(self, storage: Storage) -> int:
        """Return how many bytes a stream may grow before the caller must call `room_for`."""
        most = self.limits.max_memory if storage is Storage.MEMORY else self.limits.max_storage
        account = most - self._used[storage] if most >= 0 else PLENTY
        return max(0, min(account, self.room.left(storage), PLENTY))

    def room_for(self, storage: Storage, n: int) -> ApiError | None:
        """Return why a stream may not grow by `n` bytes: account limits first, then server's."""
        most = self.limits.max_memory if storage is Storage.MEMORY else self.limits.max_storage
        if 0 <= most < self._used[storage] + n:
            is_granted = not self.tiers or tier_of(1) in self.tiers
            return refusals.ACCOUNT_RESOURCES_EXCEEDED if is_granted else refusals.NO_LIMITS
        if not self.room.has(storage, n):
            return refusals.INSUFFICIENT_RESOURCES
        return None
