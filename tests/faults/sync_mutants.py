"""Mutants of a disk that fault tests must catch."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from penstock.store.errors import SyncFailed
from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


def ignore_failed_syncs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every failed sync of a simulated disk look as if it had succeeded."""

    def ignoring(sync: Callable[..., None]) -> Callable[..., None]:
        def tried(*args: object) -> None:
            with suppress(SyncFailed):
                sync(*args)

        return tried

    monkeypatch.setattr(SimDisk, "fdatasync", ignoring(SimDisk.fdatasync))
    monkeypatch.setattr(SimDisk, "sync_dir", ignoring(SimDisk.sync_dir))
