"""Buffers the updates a fold has received but not applied, and decides when a batch is due.

Every update with a revision advances the cursor, even if `parse` drops it, so a run of irrelevant
keys delays nothing. An update without a revision never advances it. The watch loop calls `receive`,
applies the batch when it is full or due, and then calls `raw_is_stored` and `batch_ended`. Pure
except for the caller's `parse`; times are seconds of the caller's clock.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, TypeVar

from penstock.kv.update_batch import JoinedUpdates, Updates

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from penstock.kv.kv_types import KvUpdate

HYDRATE_UPDATES = 8_192
"""Default batch size, in updates, until a fold has caught up; a store may set another size."""
BATCH_BYTES_MAX = 64 * 1024 * 1024
"""A batch with values of this total size is applied, even if it has few updates."""
REJECTED_KEYS_LOGGED_MAX = 1_000
"""Maximum number of keys for which a `parse` error is logged, once per key."""

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """When a batch is applied: after `window` seconds, or once it has `max` updates.

    Until the fold has caught up, `hydrate_window` and `hydrate_max` apply instead. There is no
    queue before the batch: the loop requests more events only when the batch has room, which holds
    the server back.
    """

    window: float = 0.010
    max: int = 100
    hydrate_window: float = 0.250
    hydrate_max: int | None = None
    """None uses the store's `hydrate_batch`."""


class Rejections:
    """Counts updates for which `parse` raised, and logs each key once.

    The store keeps these updates; the application does not receive them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys: set[str] = set()

    def note(self, key: str) -> None:
        """Count a rejected update; call it in the exception handler, because it logs the error."""
        self.count += 1
        if key not in self._keys and len(self._keys) < REJECTED_KEYS_LOGGED_MAX:
            self._keys.add(key)
            log.exception("an update could not be parsed key=%s", key)


class BatchBuffer(Generic[T]):
    """The current batch: `raw` updates for the store, `batch` (parsed) for the application."""

    def __init__(
        self,
        config: BatchConfig,
        *,
        hydrate_max: int,
        parse: Callable[[KvUpdate], T | None] | None,
        keep_raw: bool,
        keep_parsed: bool,
        rejections: Rejections | None = None,
    ) -> None:
        self._config = config
        self._hydrate_max = hydrate_max if config.hydrate_max is None else config.hydrate_max
        self._parse = parse
        self._keep_raw = keep_raw
        self._keep_parsed = keep_parsed
        self._raw: list[Sequence[KvUpdate]] = []
        self._raw_count = 0
        self._byte_count = 0
        self._rejections = Rejections() if rejections is None else rejections
        self.batch: list[T] = []
        self.high: int | None = None
        self.deadline: float | None = None
        self.is_caught_up = False

    # -- receiving

    def receive(self, updates: Sequence[KvUpdate], now: float) -> None:
        """Add updates, in the order received."""
        if isinstance(updates, Updates):
            highest = updates.last
        else:
            highest = max((update.revision for update in updates), default=-1)
        if highest >= 0:
            self.high = max(self.high or 0, highest)
        self._byte_count += _bytes_of(updates)
        if self._keep_raw:
            self._raw.append(updates)
            self._raw_count += len(updates)
        if self._keep_parsed:
            self.batch.extend(self._parsed(updates))
        self._arm(now)

    def bookmark(self, revision: int, now: float) -> None:
        """Advance to a bookmarked revision, like an update without data."""
        self.high = max(self.high or 0, revision)
        self._arm(now)

    def in_portions(self, updates: Sequence[KvUpdate]) -> Iterator[Sequence[KvUpdate]]:
        """Split updates so that no batch passed to the application exceeds the limit."""
        limit = self._limit
        if not self._keep_parsed or len(updates) <= limit:
            yield updates
            return
        for start in range(0, len(updates), limit):
            yield updates[start : start + limit]

    # -- applying

    @property
    def is_empty(self) -> bool:
        return not self.batch and not self._raw and self.high is None

    @property
    def is_full(self) -> bool:
        count = max(len(self.batch), self._raw_count)
        return count >= self._limit or self._byte_count >= BATCH_BYTES_MAX

    def is_due(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline

    @property
    def raw(self) -> Sequence[KvUpdate]:
        return self._raw[0] if len(self._raw) == 1 else JoinedUpdates(self._raw)

    def raw_is_stored(self) -> None:
        self._raw.clear()
        self._raw_count = self._byte_count = 0

    def batch_ended(self) -> None:
        """Start a new batch after a flush; `raw` stays if the store rejected it."""
        self.high = None
        self.deadline = None

    @property
    def _limit(self) -> int:
        return self._config.max if self.is_caught_up else self._hydrate_max

    def _arm(self, now: float) -> None:
        if self.deadline is None:
            config = self._config
            self.deadline = now + (config.window if self.is_caught_up else config.hydrate_window)

    def _parsed(self, updates: Sequence[KvUpdate]) -> Iterator[T]:
        parse = self._parse
        for update in updates:
            if parse is None:
                yield update  # type: ignore[misc]  # without `parse` T is KvUpdate
                continue
            try:
                parsed = parse(update)
            except Exception:
                self._rejections.note(update.key)
                continue
            if parsed is not None:
                yield parsed


def _bytes_of(updates: Sequence[KvUpdate]) -> int:
    if isinstance(updates, Updates):
        return updates.batch.byte_count
    return sum(len(update.value) for update in updates)
