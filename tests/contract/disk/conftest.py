"""The disks the contract is held against; a new one joins with a line in `DISKS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.io.disk import RealDisk
from penstock.testing.recording_disk import RecordingDisk
from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.store.io.disk import Disk

DISKS: dict[str, Callable[[Path], Disk]] = {
    "real": lambda path: RealDisk.at(path / "root", create=True),
    "sim": lambda path: SimDisk(),
    "recorded real": lambda path: RecordingDisk(RealDisk.at(path / "root", create=True)),
    "recorded sim": lambda path: RecordingDisk(SimDisk()),
}


@pytest.fixture(params=DISKS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    made = DISKS[request.param](tmp_path)
    yield made
    made.close()
