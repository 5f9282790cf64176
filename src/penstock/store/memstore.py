"""A store in memory: its messages end with the process; otherwise it follows the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.store.contract import Limits
from penstock.store.index.message_log import MessageLog
from penstock.store.indexed_store import IndexedStore

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.contract import Cold, Range, Syncing, Work

BLOCK_BYTES: Final = 1_048_576
"""Size of a block image: memory of removed messages is freed in steps of this size."""


class MemStore(IndexedStore):
    """Messages in memory. `seed` keys the hash tables; `noise` returns bytes to erase with."""

    def __init__(
        self,
        limits: Limits | None = None,
        *,
        first_seq: int = 1,
        seed: int = 0,
        noise: Callable[[int], bytes] = bytes,
    ) -> None:
        log = MessageLog(block_bytes=BLOCK_BYTES, first_seq=first_seq, seed=seed)
        super().__init__(log, limits or Limits(), noise)

    @property
    def lost(self) -> tuple[Range, ...]:
        return ()

    @property
    def durable_seq(self) -> int:
        return self._log.last_seq

    @property
    def sync_wanted(self) -> bool:
        return False

    def pending_sync(self, *, write_only: bool = False) -> Syncing | None:
        return None

    def synced(self, work: Work, failure: Exception | None = None) -> None:
        raise ValueError("nothing of a store in memory is ever synced")

    def fetch(self, cold: Cold) -> Work:
        raise ValueError("nothing of a store in memory is ever cold")

    def fetched(self, work: Work) -> None:
        raise ValueError("nothing of a store in memory is ever cold")

    def close(self) -> None:
        """Do nothing: there is nothing to write and no file to close."""
