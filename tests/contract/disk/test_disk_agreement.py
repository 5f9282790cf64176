"""The simulated disk against the real one: any calls in any order, the same answers."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from penstock.store.errors import StoreError
from penstock.store.io.disk import RealDisk
from penstock.testing.recording_disk import DiskCall as RecordedCall
from penstock.testing.recording_disk import DiskReplay, RecordingDisk
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import Lose

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.io.disk import Disk, File

NAMES = st.sampled_from(["a", "b", "c", "d"])
PLACES = st.sampled_from([0, 1, 511, 512, 4095, 4096, 5000, 9000])
DATA = st.sampled_from([b"", b"x", b"ab" * 300, b"cde" * 2000])


class Disks(RuleBasedStateMachine):
    """Makes every call on both and compares answers, errors and what is there afterwards."""

    def __init__(self) -> None:
        super().__init__()
        self.place = tempfile.TemporaryDirectory()
        self.real = RealDisk.at(self.place.name)
        self.sim = SimDisk()
        self.recorded = RecordingDisk(self.sim)
        self.disks: tuple[Disk, Disk] = (self.real, self.recorded)
        self.files: list[tuple[File, File]] = []

    def teardown(self) -> None:
        for file, _ in self.files:
            self.real.close_file(file)
        self.real.close()
        self.place.cleanup()

    def both(self, call: Callable[[Disk], object]) -> list[object]:
        answers: list[object] = []
        for disk in self.disks:
            try:
                answers.append(call(disk))
            except StoreError as error:
                answers.append((type(error), error.call, error.errno))
        return answers

    def same(self, call: Callable[[Disk], object]) -> None:
        real, sim = self.both(call)
        assert real == sim

    @rule(name=NAMES, create=st.booleans(), new=st.booleans())
    def open(self, name: str, create: bool, new: bool) -> None:
        answers = self.both(lambda d: d.create(name) if new else d.open(name, create=create))
        if all(isinstance(answer, tuple) for answer in answers):
            assert answers[0] == answers[1]
        else:
            self.files.append((answers[0], answers[1]))  # type: ignore[arg-type]

    def on_file(self, which: int, call: Callable[[Disk, File], object]) -> None:
        if not self.files:
            return
        real, sim = self.files[which % len(self.files)]
        self.same(lambda d: call(d, real if d is self.real else sim))

    @rule(which=st.integers(0, 9), data=DATA, at=PLACES)
    def write(self, which: int, data: bytes, at: int) -> None:
        self.on_file(which, lambda d, f: d.pwrite(f, data, at))

    @rule(which=st.integers(0, 9), n=PLACES, at=PLACES)
    def read(self, which: int, n: int, at: int) -> None:
        self.on_file(which, lambda d, f: d.pread(f, n, at))

    @rule(which=st.integers(0, 9), size=PLACES)
    def truncate(self, which: int, size: int) -> None:
        self.on_file(which, lambda d, f: d.truncate(f, size))

    @rule(which=st.integers(0, 9), size=PLACES)
    def preallocate(self, which: int, size: int) -> None:
        self.on_file(which, lambda d, f: d.preallocate(f, size))

    @rule(which=st.integers(0, 9))
    def sync(self, which: int) -> None:
        self.on_file(which, lambda d, f: d.fdatasync(f))

    @rule(old=NAMES, new=NAMES)
    def rename(self, old: str, new: str) -> None:
        self.same(lambda d: d.rename(old, new))

    @rule(name=NAMES)
    def unlink(self, name: str) -> None:
        self.same(lambda d: d.unlink(name))

    @rule(name=NAMES)
    def mkdir(self, name: str) -> None:
        self.same(lambda d: d.mkdir(name))

    @rule(name=NAMES)
    def rmdir(self, name: str) -> None:
        self.same(lambda d: d.rmdir(name))

    @rule(name=NAMES, inner=NAMES)
    def below(self, name: str, inner: str) -> None:
        def call(disk: Disk) -> list[str]:
            below = disk.subdir(name)
            try:
                below.close_file(below.open(inner, create=True))
                return below.files()
            finally:
                below.close()

        self.same(call)

    @rule()
    def sync_dir(self) -> None:
        self.same(lambda d: d.sync_dir())

    @invariant()
    def the_same_is_there(self) -> None:
        self.same(lambda d: [(name, d.read_small(name, 20_000)) for name in d.files()])
        self.same(lambda d: d.directories())

    @rule()
    def everything_synced_survives(self) -> None:
        for _, file in self.files:
            self.recorded.fdatasync(file)
        self.recorded.sync_dir()
        after = self.sim.crash(Lose())
        assert after.files() == self.sim.files()
        for name in after.files():
            contents = self.sim.contents(name)
            if contents.is_synced():
                assert after.read_small(name, 20_000) == self.sim.read_small(name, 20_000)

    @rule()
    def a_recording_gives_the_same_disk_again(self) -> None:
        replay = DiskReplay(SimDisk())
        for event in self.recorded.events:
            assert isinstance(event, RecordedCall)
            replay.do(event)
        assert replay.disk.files() == self.sim.files()
        assert replay.disk.directories() == self.sim.directories()
        for name in replay.disk.files():
            assert replay.disk.read_small(name, 20_000) == self.sim.read_small(name, 20_000)


TestDisks = Disks.TestCase
TestDisks.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
