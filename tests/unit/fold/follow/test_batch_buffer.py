"""When a batch is full: by number, or by the length of what is in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.fold.follow.batch_buffer import BATCH_BYTES_MAX, BatchBuffer, BatchConfig
from support.folds import put

if TYPE_CHECKING:
    from penstock.kv.kv_types import KvUpdate


@pytest.fixture
def pending() -> BatchBuffer[KvUpdate]:
    return BatchBuffer(
        BatchConfig(), hydrate_max=50_000, parse=None, keep_raw=True, keep_parsed=False
    )


def test_few_large_values_fill_batch(pending: BatchBuffer[KvUpdate]) -> None:
    half = bytes(BATCH_BYTES_MAX // 2)
    pending.receive([put("a", half, 1)], 0.0)
    assert not pending.is_full
    pending.receive([put("b", half, 2)], 0.0)
    assert pending.is_full
    pending.raw_is_stored()
    assert not pending.is_full


def test_many_small_values_fill_batch(pending: BatchBuffer[KvUpdate]) -> None:
    pending.receive([put("a", b"", 1)] * 49_999, 0.0)
    assert not pending.is_full
    pending.receive([put("a", b"", 1)], 0.0)
    assert pending.is_full
