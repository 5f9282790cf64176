"""Blocking folds that share the thread of their event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.fold import BlockingFold, FoldStoreError, FoldThread
from penstock.fold.follow.store_worker import THREADS_MAX
from support.followed_folds import fold_threads

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.sockets

NOWHERE = "nats://127.0.0.1:1/b"
COUNT = 100


def test_many_blocking_folds_share_one_thread(tmp_path: Path) -> None:
    with FoldThread() as thread:
        folds = [
            BlockingFold.open(NOWHERE, tmp_path / f"fold{number}", thread=thread)
            for number in range(COUNT)
        ]
        for fold in folds:
            fold.__enter__()
        assert fold_threads() <= THREADS_MAX + 1
        assert all(fold.get("a") is None for fold in folds)
        folds[0].close()
        with pytest.raises(FoldStoreError, match="closed"):
            folds[0].get("a")
        assert folds[1].count() == 0  # the thread of the others goes on
        for fold in folds:
            fold.close()
    with pytest.raises(FoldStoreError):
        folds[1].get("a")
