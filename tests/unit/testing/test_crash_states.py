"""The explorer finds what a writer that acknowledges too early loses, and accuses no right one."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest

from penstock.store.io.disk import RealDisk
from penstock.testing.crash_states import crash_states
from penstock.testing.recording_disk import RecordingDisk, copy_of
from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from penstock.store.io.disk import Disk

RECORD = 700
"""Not a multiple of a sector, so that records share sectors and pages."""
DIGEST = 8


def record(n: int) -> bytes:
    body = n.to_bytes(8, "little").ljust(RECORD - DIGEST, b"\x5a")
    return hashlib.blake2b(body, digest_size=DIGEST).digest() + body


def records(data: bytes) -> Iterator[int]:
    """The numbers of the valid records at the front."""
    for at in range(0, len(data) - RECORD + 1, RECORD):
        digest, body = data[at : at + DIGEST], data[at + DIGEST : at + RECORD]
        if hashlib.blake2b(body, digest_size=DIGEST).digest() != digest:
            return
        yield int.from_bytes(body[:8], "little")


class LogWriter:
    """Appends records to a log, a new file every few, and marks what it acknowledges."""

    per_file = 5

    def __init__(self, disk: RecordingDisk) -> None:
        self.disk = disk

    def run(self, batches: int, batch: int) -> None:
        n = 0
        for _ in range(batches):
            if n % self.per_file == 0:
                self.file = self.disk.create(f"{n:06d}.log")
                self.new_file()
            for _ in range(min(batch, self.per_file - n % self.per_file)):
                self.disk.pwrite(self.file, record(n), n % self.per_file * RECORD)
                n += 1
            self.commit(n)

    def new_file(self) -> None:
        self.disk.preallocate(self.file, self.per_file * RECORD)
        self.disk.fdatasync(self.file)
        self.disk.sync_dir()

    def commit(self, n: int) -> None:
        self.disk.fdatasync(self.file)
        self.disk.mark(n)


class AcksBeforeSync(LogWriter):
    def commit(self, n: int) -> None:
        self.disk.mark(n)
        self.disk.fdatasync(self.file)


class NeverSyncsTheDirectory(LogWriter):
    def new_file(self) -> None:
        self.disk.preallocate(self.file, self.per_file * RECORD)
        self.disk.fdatasync(self.file)


class AcksWithoutSync(LogWriter):
    def commit(self, n: int) -> None:
        self.disk.mark(n)


def recovered(disk: Disk) -> list[int]:
    found: list[int] = []
    for name in disk.files():
        found.extend(records(disk.read_small(name, 1 << 20)))
    return found


def log_violations(
    writer: type[LogWriter], disk: Disk, *, batches: int = 6, batch: int = 2
) -> list[str]:
    recording = RecordingDisk(disk)
    writer(recording).run(batches, batch)
    wrong = []
    for image in crash_states(recording):
        acked = image.marks[-1] if image.marks else 0
        assert isinstance(acked, int)
        if recovered(image.disk)[:acked] != list(range(acked)):
            wrong.append(image.description)
    return wrong


def test_writer_that_syncs_before_it_acknowledges_loses_nothing() -> None:
    assert log_violations(LogWriter, SimDisk()) == []
    assert log_violations(LogWriter, SimDisk(), batches=11, batch=1) == []


@pytest.mark.parametrize("mutant", [AcksBeforeSync, NeverSyncsTheDirectory, AcksWithoutSync])
def test_writer_that_acknowledges_what_is_not_durable_is_caught(mutant: type[LogWriter]) -> None:
    assert log_violations(mutant, SimDisk())


def test_run_on_real_disk_is_explored_alike(tmp_path: Path) -> None:
    disk = RealDisk.at(tmp_path)
    assert log_violations(LogWriter, disk) == []
    disk.close()
    (tmp_path / "other").mkdir()
    disk = RealDisk.at(tmp_path / "other")
    assert log_violations(AcksBeforeSync, disk)
    disk.close()


# -- replacing a file by rename


def replaces(disk: RecordingDisk, n: int, *, sync_file: bool = True, sync_dir: bool = True) -> None:
    file = disk.open("state.tmp", create=True)
    disk.truncate(file, 0)
    disk.pwrite(file, record(n) * 3, 0)
    if sync_file:
        disk.fdatasync(file)
    disk.close_file(file)
    disk.rename("state.tmp", "state")
    if sync_dir:
        disk.sync_dir()
    disk.mark(n)


def overwrites(disk: RecordingDisk, n: int) -> None:
    file = disk.open("state", create=True)
    disk.pwrite(file, record(n) * 3, 0)
    disk.fdatasync(file)
    disk.sync_dir()
    disk.mark(n)


def state_violations(replace: Callable[[RecordingDisk, int], None]) -> list[str]:
    """Once acknowledged, a state is there: that one, or the next, whole."""
    recording = RecordingDisk(SimDisk())
    for n in range(1, 5):
        replace(recording, n)
    wrong = []
    for image in crash_states(recording):
        if not image.marks:
            continue
        acked = image.marks[-1]
        assert isinstance(acked, int)
        there = "state" in image.disk.files()
        data = image.disk.read_small("state", 1 << 20) if there else b""
        if data not in (record(acked) * 3, record(acked + 1) * 3):
            wrong.append(image.description)
    return wrong


def test_write_sync_rename_sync_replaces_file_safely() -> None:
    assert state_violations(replaces) == []


MUTANTS: dict[str, Callable[[RecordingDisk, int], None]] = {
    "no sync of the file": lambda d, n: replaces(d, n, sync_file=False),
    "no sync of the directory": lambda d, n: replaces(d, n, sync_dir=False),
    "overwritten in place": overwrites,
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_every_shorter_way_of_replacing_file_is_caught(mutant: str) -> None:
    assert state_violations(MUTANTS[mutant])


def test_block_removed_before_its_successor_is_durable_is_caught() -> None:
    """Needs an unlink that overtakes the sync of the file that took the records over."""

    def compact(*, right: bool) -> list[str]:
        disk = RecordingDisk(SimDisk())
        old = disk.create("old")
        disk.pwrite(old, record(1), 0)
        disk.fdatasync(old)
        disk.sync_dir()
        disk.mark("acked")
        new = disk.create("new")
        disk.pwrite(new, record(1), 0)
        disk.fdatasync(new)
        if right:
            disk.sync_dir()
        disk.unlink("old")
        return [i.description for i in crash_states(disk) if i.marks and 1 not in recovered(i.disk)]

    assert compact(right=True) == []
    assert compact(right=False)


# -- the explorer itself


def test_directories_below_are_cut_as_well() -> None:
    disk = RecordingDisk(SimDisk())
    disk.mkdir("d")
    below = disk.subdir("d")
    file = below.create("x")
    below.pwrite(file, b"abc", 0)
    below.fdatasync(file)
    below.sync_dir()
    disk.sync_dir()
    seen = set()
    for image in crash_states(disk):
        if not image.disk.directories():
            seen.add("no directory")
        elif not image.disk.subdir("d").files():
            seen.add("no file")
        else:
            seen.add(image.disk.subdir("d").read_small("x", 3))
    assert seen == {"no directory", "no file", b"", b"abc", bytes(3)}


def test_files_before_recording_are_durable() -> None:
    disk = SimDisk()
    disk.pwrite(disk.create("a"), b"abc", 0)
    disk.mkdir("d")
    disk.subdir("d").create("x")
    recording = RecordingDisk(disk)
    recording.create("b")
    for image in crash_states(recording):
        assert image.disk.read_small("a", 3) == b"abc"
        assert image.disk.subdir("d").files() == ["x"]


def test_copy_holds_what_original_does(tmp_path: Path) -> None:
    (tmp_path / "d" / "e").mkdir(parents=True)
    (tmp_path / "a").write_bytes(b"abc")
    (tmp_path / "d" / "e" / "b").write_bytes(b"def")
    disk = RealDisk.at(tmp_path)
    copy = copy_of(disk)
    disk.close()
    assert copy.read_small("a", 9) == b"abc"
    assert copy.subdir("d").subdir("e").read_small("b", 9) == b"def"


def test_every_moment_of_run_is_cut() -> None:
    recording = RecordingDisk(SimDisk())
    LogWriter(recording).run(batches=4, batch=2)
    moments = {image.description.split(":")[0] for image in crash_states(recording)}
    assert len(moments) == len([e for e in recording.events if hasattr(e, "call")]) + 1


def test_last_write_is_torn_at_every_sector_from_both_sides() -> None:
    recording = RecordingDisk(SimDisk())
    file = recording.create("a")
    recording.pwrite(file, b"o" * 2048, 0)
    recording.fdatasync(file)
    recording.sync_dir()
    recording.pwrite(file, b"n" * 2048, 0)
    found = {
        image.disk.read_small("a", 2048)
        for image in crash_states(recording, by_chance=0)
        if "a" in image.disk.files() and image.disk.size(image.disk.open("a")) == 2048
    }
    for k in (512, 1024, 1536):
        assert b"n" * k + b"o" * (2048 - k) in found
        assert b"o" * k + b"n" * (2048 - k) in found


def test_without_chance_both_extremes_and_every_mix_of_them_are_tried() -> None:
    recording = RecordingDisk(SimDisk())
    file = recording.create("a")
    recording.pwrite(file, b"abc", 0)
    images = [i for i in crash_states(recording, by_chance=0) if "after call 2" in i.description]
    found = {
        image.description.split(": ")[1]: image.disk.read_small("a", 9)
        if image.disk.files()
        else None
        for image in images
    }
    assert found == {
        "all unsynced lost": None,
        "all unsynced kept": b"abc",
        "sizes kept, contents lost": bytes(3),
        "contents kept, sizes lost": b"",
        "names kept, contents lost": b"",
        "contents kept, names lost": None,
        "the last write alone": b"abc",
        "page 0 of file 1 lost": bytes(3),
    }


def test_without_chance_names_are_lost_from_the_end_and_one_at_time() -> None:
    recording = RecordingDisk(SimDisk())
    for name in "abcd":
        recording.create(name)
    images = [i for i in crash_states(recording, by_chance=0) if "after call 4" in i.description]
    found = {"".join(image.disk.files()) for image in images}
    assert found == {"", "a", "ab", "abc", "abcd", "bcd", "acd", "abd"}


@pytest.mark.parametrize("bound", [1, 7, 50, 400])
def test_number_of_images_is_bounded_and_the_end_of_run_is_among_them(bound: int) -> None:
    recording = RecordingDisk(SimDisk())
    LogWriter(recording).run(batches=20, batch=2)
    images = list(crash_states(recording, images_max=bound))
    assert 0 < len(images) <= bound
    assert len(images[-1].marks) == 20


def test_same_seed_gives_the_same_images() -> None:
    recording = RecordingDisk(SimDisk())
    AcksBeforeSync(recording).run(batches=4, batch=2)

    def images(seed: int) -> list[tuple[str, dict[str, bytes]]]:
        return [
            (i.description, {n: i.disk.read_small(n, 1 << 20) for n in i.disk.files()})
            for i in crash_states(recording, seed=seed)
        ]

    assert images(3) == images(3)
    assert images(3) != images(4)


def test_image_is_free_to_be_written_by_its_recovery() -> None:
    recording = RecordingDisk(SimDisk())
    LogWriter(recording).run(batches=3, batch=2)
    for image in crash_states(recording):
        file = image.disk.open("recovered", create=True)
        image.disk.pwrite(file, b"x", 0)
        for name in image.disk.files():
            image.disk.truncate(image.disk.open(name), 0)
    assert recording.read_small("000000.log", 1 << 20)[:RECORD] == record(0)
    assert log_violations(LogWriter, SimDisk()) == []
