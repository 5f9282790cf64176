"""Cuts the power at every step of a recorded run and yields the disks that recovery may find.

`crash_states` replays a `RecordingDisk` call by call. Before every call that changes something,
and at the end, it yields the disks that a power cut could leave: everything unsynced lost;
everything kept; names without contents and contents without names; every prefix of the pending
name changes, and all but one of them; the last write torn at sectors, from either side; the last
write alone; one page missing; and random ones. Each comes with the marks recorded before that
moment, so a test can compare "acknowledged" with "recovered". The number is bounded, and a seed
makes it repeatable.
"""

from __future__ import annotations

from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.testing.recording_disk import DiskCall, DiskReplay
from penstock.testing.sim_files import PAGE, SECTOR, ByChance, Choice, Contents, Lose, SimDirectory

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.testing.recording_disk import RecordingDisk
    from penstock.testing.sim_disk import SimDisk
    from penstock.testing.sim_files import NameChange

IMAGES_MAX: Final = 20_000
IMAGES_PER_POINT_MIN: Final = 4
"""If the limit allows fewer images per moment than this, moments are left out instead."""
BY_CHANCE: Final = 6
TEARS_MAX: Final = 8
PAGES_MAX: Final = 4
NAMES_MAX: Final = 6

_READS: Final = frozenset({"subdir"})


class CrashImage(NamedTuple):
    """A disk after a power cut, a description of the cut, and the marks recorded before it."""

    description: str
    disk: SimDisk
    marks: tuple[object, ...]


def crash_states(
    recording: RecordingDisk,
    *,
    images_max: int = IMAGES_MAX,
    by_chance: int = BY_CHANCE,
    seed: int = 0,
) -> Iterator[CrashImage]:
    """Yield the disks a power cut could leave at any moment of the run, at most `images_max`."""
    end = sum(_changes(event) for event in recording.events)
    step = max(1, -(-(end + 1) * IMAGES_PER_POINT_MIN // images_max))
    left = images_max
    for point, replay, last, marks in _moments(recording):
        if (end - point) % step:
            continue
        when = f"call {point} ({last.call} {last.name})" if last else "the start"
        rng = Random(f"{seed}/{point}")
        share = max(1, left // ((end - point) // step + 1))
        for what, choice in islice(_cuts(replay, last, rng, by_chance), share):
            left -= 1
            yield CrashImage(f"after {when}: {what}", replay.disk.crash(choice), marks)


def _changes(event: object) -> bool:
    return isinstance(event, DiskCall) and event.call not in _READS


def _moments(
    recording: RecordingDisk,
) -> Iterator[tuple[int, DiskReplay, DiskCall | None, tuple[object, ...]]]:
    """Yield the state before every call that changes something, and at the end."""
    replay = DiskReplay(recording.base.crash(Choice()))
    marks: tuple[object, ...] = ()
    last: DiskCall | None = None
    point = 0
    for event in recording.events:
        if not isinstance(event, DiskCall):
            marks = (*marks, event.value)
            continue
        if _changes(event):
            yield point, replay, last, marks
            point += 1
            last = event
        replay.do(event)
    yield point, replay, last, marks


def _cuts(
    replay: DiskReplay, last: DiskCall | None, rng: Random, by_chance: int
) -> Iterator[tuple[str, Choice]]:
    """Yield the cuts to try here, the most revealing first."""
    unsynced = _Unsynced(replay.disk.directory)
    yield "all unsynced lost", Lose()
    if not unsynced.files and not unsynced.directories:
        return
    yield "all unsynced kept", Choice()
    if unsynced.files:
        yield "sizes kept, contents lost", Lose(sizes=False, names=False)
        yield "contents kept, sizes lost", Lose(pages=False, names=False)
    if unsynced.files and unsynced.directories:
        yield "names kept, contents lost", Lose(names=False)
        yield "contents kept, names lost", Lose(pages=False, sizes=False)
    if last is not None and last.call == "pwrite":
        yield from _torn(replay, last)
    yield from _names(unsynced.directories)
    for contents in unsynced.files:
        for page in islice(reversed(contents.versions), PAGES_MAX):
            yield f"page {page} of file {contents.number} lost", _PageLost(contents, page)
    for n in range(by_chance):
        yield f"by chance {n}", ByChance(rng)


class _Unsynced:
    """Files and directories of a tree that a power cut can still affect."""

    def __init__(self, root: SimDirectory) -> None:
        self.files: list[Contents] = []
        self.directories: list[SimDirectory] = []
        self._visit(root)

    def _visit(self, directory: SimDirectory) -> None:
        nodes = {id(node): node for node in directory.durable.values()}
        nodes.update((id(change.node), change.node) for change in directory.pending)
        if directory.pending:
            self.directories.append(directory)
        for node in nodes.values():
            if isinstance(node, SimDirectory):
                self._visit(node)
            elif not node.is_synced():
                self.files.append(node)


def _torn(replay: DiskReplay, last: DiskCall) -> Iterator[tuple[str, Choice]]:
    contents = replay.contents(last)
    written = range(last.at, last.at + len(last.data))
    yield "the last write alone", _LastWriteAlone(contents, written)
    tears = range((written.start // SECTOR + 1) * SECTOR, written.stop, SECTOR)
    every = max(1, -(-len(tears) // TEARS_MAX))
    for tear in tears[::every]:
        before, behind = range(written.start, tear), range(tear, written.stop)
        yield f"torn, kept before {tear}", _Torn(contents, written, before)
        yield f"torn, kept from {tear}", _Torn(contents, written, behind)


def _names(directories: list[SimDirectory]) -> Iterator[tuple[str, Choice]]:
    for directory in directories:
        pending = len(directory.pending)
        for n in range(max(1, pending - NAMES_MAX), pending):
            first = [i < n for i in range(pending)]
            yield f"first {n} changes of names", _SomeNames(directory, first)
        for n in range(max(0, pending - 1 - NAMES_MAX), pending - 1):
            others = [i != n for i in range(pending)]
            yield f"all changes of names but {n + 1}", _SomeNames(directory, others)


class _SomeNames(Choice):
    """Keeps only some name changes of one directory, and everything else."""

    def __init__(self, directory: SimDirectory, kept: list[bool]) -> None:
        self._directory = directory
        self._kept = kept

    def names(self, directory: SimDirectory, pending: list[NameChange]) -> list[bool]:
        return self._kept if directory is self._directory else [True] * len(pending)


class _PageLost(Choice):
    """Reverts one page of one file to its last synced version; keeps everything else."""

    def __init__(self, contents: Contents, page: int) -> None:
        self._contents = contents
        self._page = page

    def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
        lost = contents is self._contents and page == self._page
        return versions[0 if lost else -1]


class _Torn(Choice):
    """Keeps only the sectors in `kept` of the last write, and everything before it."""

    def __init__(self, contents: Contents, written: range, kept: range) -> None:
        self._contents = contents
        self._written = written
        self._kept = kept

    def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
        if contents is not self._contents or not _touches(page, self._written):
            return versions[-1]
        return _mixed(page, versions[-2], versions[-1], self._kept)


class _LastWriteAlone(Choice):
    """Keeps only the last write and loses the unsynced writes before it; keeps names and sizes."""

    def __init__(self, contents: Contents, written: range) -> None:
        self._contents = contents
        self._written = written

    def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
        if contents is not self._contents or not _touches(page, self._written):
            return versions[0]
        return _mixed(page, versions[0], versions[-1], self._written)


def _touches(page: int, span: range) -> bool:
    return page * PAGE < span.stop and span.start < (page + 1) * PAGE


def _mixed(page: int, old: bytes, new: bytes, kept: range) -> bytes:
    """Return the old page with those whole sectors of the new one that `kept` touches."""
    start = page * PAGE
    a = max(0, kept.start // SECTOR * SECTOR - start)
    b = min(PAGE, -(-kept.stop // SECTOR) * SECTOR - start)
    return old if a >= b else old[:a] + new[a:b] + old[b:]
