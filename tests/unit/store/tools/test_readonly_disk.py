"""An overlay behaves like the disk it shows, and that disk never changes."""

from __future__ import annotations

from random import Random

import pytest

from penstock.store.errors import NotFound, StoreError
from penstock.store.tools.readonly_disk import OverlayDisk
from penstock.testing.recording_disk import RecordingDisk, copy_of
from penstock.testing.sim_disk import SimDisk

NAMES = ("a", "b", "c", "d")
FILE_BYTES_MAX = 1 << 20


def filled() -> SimDisk:
    disk = SimDisk()
    for name in NAMES[:3]:
        file = disk.create(name)
        disk.pwrite(file, name.encode() * 5000, 0)
        disk.fdatasync(file)
        disk.close_file(file)
    disk.sync_dir()
    return disk


def shown(disk: OverlayDisk | SimDisk) -> dict[str, bytes]:
    return {name: disk.read_small(name, FILE_BYTES_MAX) for name in disk.files()}


def change(disk: OverlayDisk | SimDisk, chance: Random) -> str:
    """One change of some kind; what came of it."""
    name, other = chance.choice(NAMES), chance.choice(NAMES)
    what, at = chance.randrange(5), chance.randrange(9000)
    try:
        if what == 0:
            disk.unlink(name)
        elif what == 1:
            disk.rename(name, other)
        else:
            file = disk.open(name, create=chance.random() < 0.5)
            if what == 2:
                disk.truncate(file, at)
            else:
                disk.pwrite(file, b"new" * 50, at)
            disk.fdatasync(file)
            disk.close_file(file)
    except StoreError as error:
        return type(error).__name__
    return "done"


@pytest.mark.parametrize("seed", range(20))
def test_changes_show_as_on_disk_and_one_below_stays(seed: int) -> None:
    below = filled()
    recorded = RecordingDisk(below)
    overlay, twin = OverlayDisk(recorded), copy_of(below)
    before = shown(below)
    ours, theirs = Random(seed), Random(seed)
    for _ in range(40):
        assert change(overlay, ours) == change(twin, theirs)
        assert shown(overlay) == shown(twin)
    assert shown(below) == before
    assert {event.call for event in recorded.events} <= {"open"}  # type: ignore[union-attr]


def test_file_open_while_another_handle_writes_shows_change() -> None:
    overlay = OverlayDisk(filled())
    reader, writer = overlay.open("a", writable=False), overlay.open("a")
    overlay.pwrite(writer, b"NEW", 1)
    assert overlay.pread(reader, 5, 0) == b"aNEWa"
    assert overlay.size(reader) == 5000


def test_not_there_is_not_found() -> None:
    overlay = OverlayDisk(filled())
    with pytest.raises(NotFound):
        overlay.open("d")
    overlay.unlink("a")
    with pytest.raises(NotFound):
        overlay.open("a")


def test_directories_cannot_be_made() -> None:
    with pytest.raises(StoreError):
        OverlayDisk(filled()).mkdir("x")
