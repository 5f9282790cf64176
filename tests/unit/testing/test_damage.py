"""Damage at rest hits what it says and nothing else."""

from __future__ import annotations

import pytest

from penstock.testing.damage import (
    cut,
    damage_states,
    flip_bit,
    lose,
    misdirect_page,
    stale_page,
    swap,
    zero_page,
)
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import PAGE, Choice, Lose

OLD = b"o" * PAGE * 3
NEW = b"n" * PAGE * 3


@pytest.fixture
def disk() -> SimDisk:
    """Two files whose pages were written and synced twice, and a directory."""
    made = SimDisk()
    for name in ("a", "b"):
        file = made.create(name)
        for data in (OLD, NEW):
            made.pwrite(file, data, 0)
            made.fdatasync(file)
    made.mkdir("d")
    made.sync_dir()
    return made


def pages(disk: SimDisk, name: str) -> list[bytes]:
    data = disk.read_small(name, 1 << 20)
    return [data[i : i + PAGE] for i in range(0, len(data), PAGE)]


N, Z, P = NEW[:PAGE], bytes(PAGE), OLD[:PAGE]


def test_one_bit_and_no_other_is_flipped(disk: SimDisk) -> None:
    flip_bit(disk, "a", (PAGE + 10) * 8 + 3)
    data = disk.read_small("a", 1 << 20)
    assert [i for i, byte in enumerate(data) if byte != NEW[i]] == [PAGE + 10]
    assert data[PAGE + 10] == NEW[0] ^ 8


def test_pages_are_zeroed_or_stale(disk: SimDisk) -> None:
    zero_page(disk, "a", 0)
    stale_page(disk, "a", 2)
    assert pages(disk, "a") == [Z, N, P]


def test_misdirected_page_is_stale_here_and_overwrites_there(disk: SimDisk) -> None:
    file = disk.open("a")
    disk.pwrite(file, b"x" * PAGE, 0)
    disk.fdatasync(file)
    misdirect_page(disk, "a", 0, "b", 1)
    assert pages(disk, "a") == [N, N, N]
    assert pages(disk, "b") == [N, b"x" * PAGE, N]


def test_files_are_cut_lost_and_swapped(disk: SimDisk) -> None:
    cut(disk, "a", PAGE + 5)
    assert pages(disk, "a") == [N, N[:5]]
    swap(disk, "a", "b")
    assert pages(disk, "a") == [N, N, N]
    assert pages(disk, "b") == [N, N[:5]]
    lose(disk, "a")
    assert disk.files() == ["b"]


def test_damage_outlasts_power_cut(disk: SimDisk) -> None:
    zero_page(disk, "a", 1)
    cut(disk, "b", 10)
    for choice in (Lose(), Choice()):
        after = disk.crash(choice)
        assert pages(after, "a") == [N, Z, N]
        assert pages(after, "b") == [N[:10]]


def test_every_state_of_sweep_differs_in_at_least_bit_and_source_does_not_change(
    disk: SimDisk,
) -> None:
    before = {name: disk.read_small(name, 1 << 20) for name in disk.files()}
    file = disk.open("b")
    disk.pwrite(file, b"other", 0)
    disk.fdatasync(file)
    before["b"] = disk.read_small("b", 1 << 20)
    kinds = set()
    for what, harmed in damage_states(disk, seed=1, places=6):
        kinds.add(what.translate(str.maketrans("", "", "0123456789")))
        after = {name: harmed.read_small(name, 1 << 20) for name in harmed.files()}
        if "written to" not in what:
            assert after != before, what
        assert harmed.directories() == ["d"]
    assert {name: disk.read_small(name, 1 << 20) for name in disk.files()} == before
    assert {kind.split(":")[-1].strip() for kind in kinds} == {
        "bit  flipped",
        "page  zeroed",
        "page  stale",
        "cut at",
        "page  written to",
        "a is lost",
        "b is lost",
        "a and b are swapped",
    }
