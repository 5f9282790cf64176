"""What a fold has received and not yet applied, and when it is time to.

Pure but for the caller's `parse`. Every update counts towards the cursor, also one that `parse` had
no use for, so a run of keys that do not matter holds nothing up; one without a revision never moves
it. Times are seconds of whatever clock the caller has.
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
"""How much is applied at a time until a fold has caught up, unless its store wants another size."""
BATCH_BYTES_MAX = 64 * 1024 * 1024
"""A batch is applied once its values are this long together, however few they are."""
REJECTED_KEYS_LOGGED_MAX = 1_000
"""For so many keys it is said, once each, that `parse` raised."""

T = TypeVar("T")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """When a batch is applied: after `window` seconds, or once it has `max` updates.

    Until the fold has caught up it takes larger steps. Nothing is queued in front of a batch: the
    watcher is asked for more when there is room, and the server is held back until then.
    """

    window: float = 0.010
    max: int = 100
    hydrate_window: float = 0.250
    hydrate_max: int | None = None
    """None: what suits the store."""


class Rejections:
    """Updates for which `parse` raised: counted, and told of once for each key.

    The store keeps them, the application never sees them.
    """

    def __init__(self) -> None:
        self.count = 0
        self._keys: set[str] = set()

    def note(self, key: str) -> None:
        """To be called while the exception is handled."""
        self.count += 1
        if key not in self._keys and len(self._keys) < REJECTED_KEYS_LOGGED_MAX:
            self._keys.add(key)
            log.exception("an update could not be parsed key=%s", key)


class Pending(Generic[T]):
    """Updates on their way. `raw` waits for the store, `batch` (parsed) for the application."""

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
        """Take updates, in the order they came."""
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
        """Everything up to here was looked at: as an update without data."""
        self.high = max(self.high or 0, revision)
        self._arm(now)

    def in_portions(self, updates: Sequence[KvUpdate]) -> Iterator[Sequence[KvUpdate]]:
        """Updates cut so that no batch of the application is longer than it may be."""
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

    def settled(self) -> None:
        """Everything but `raw` was dealt with; the next update begins a batch."""
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
