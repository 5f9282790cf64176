"""A consumer may be deleted while a thread syncs its state."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.store.errors import StoreError
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from pathlib import Path


def test_files_stay_open_until_sync_has_run(tmp_path: Path) -> None:
    store = ConsumerStateStore.create(RealDisk.at(tmp_path), "c", incarnation=7)
    store.delivered(1, 1, 10)
    work = store.pending_sync()
    assert work is not None
    store.close()
    work.run()
    store.synced(work)
    with pytest.raises((StoreError, ValueError)):
        work.run()
