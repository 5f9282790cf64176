"""Damage to data at rest: flipped bits, zeroed, stale and misdirected pages, lost files.

Each function changes what a `SimDisk` holds, synced or not, without a call of the disk protocol;
`damage_states` yields damaged copies of one undamaged disk. Positions come from arguments or a
seed.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec

from penstock.testing.sim_files import PAGE, ZERO_PAGE, Choice, Contents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.testing.sim_disk import SimDisk

P = ParamSpec("P")

PLACES_PER_FILE: Final = 4


def flip_bit(disk: SimDisk, name: str, bit: int) -> None:
    """Flip one bit of the file."""
    contents = disk.contents(name)
    page, rest = divmod(bit, PAGE * 8)
    data = bytearray(_page(contents, page))
    data[rest // 8] ^= 1 << rest % 8
    contents.overwrite_at_rest(page, bytes(data))


def zero_page(disk: SimDisk, name: str, page: int) -> None:
    """Replace a page by zeros."""
    disk.contents(name).overwrite_at_rest(page, ZERO_PAGE)


def stale_page(disk: SimDisk, name: str, page: int) -> None:
    """Undo the last write of a page, although its sync succeeded."""
    contents = disk.contents(name)
    contents.overwrite_at_rest(page, contents.stale.get(page, ZERO_PAGE))


def misdirect_page(disk: SimDisk, name: str, page: int, to_name: str, to_page: int) -> None:
    """Redirect the last write of a page: that page becomes stale, another is overwritten."""
    target = disk.contents(to_name)
    data = _page(disk.contents(name), page)
    stale_page(disk, name, page)
    size = target.size
    target.overwrite_at_rest(to_page, data)
    target.cut_at_rest(size)


def cut(disk: SimDisk, name: str, size: int) -> None:
    """Cut off the end of the file."""
    disk.contents(name).cut_at_rest(size)


def lose(disk: SimDisk, name: str) -> None:
    """Remove the file."""
    disk.directory.names.pop(name)
    disk.directory.durable.pop(name, None)


def swap(disk: SimDisk, one: str, other: str) -> None:
    """Exchange the contents of two files."""
    for names in (disk.directory.names, disk.directory.durable):
        names[one], names[other] = names[other], names[one]


def damage_states(
    disk: SimDisk, *, seed: int = 0, places: int = PLACES_PER_FILE
) -> Iterator[tuple[str, SimDisk]]:
    """Yield copies of a root's files with one damage each: every kind, at places of every file.

    Every file must be synced, its name too. Directories below are copied undamaged.
    """
    rng = Random(seed)
    names = disk.files()
    for name in names:
        for _ in range(places if disk.contents(name).size else 0):
            yield from _at_a_place(disk, name, rng)
        yield f"{name} is lost", _harmed(disk, lose, name)
    for one, other in pairwise(names):
        yield f"{one} and {other} are swapped", _harmed(disk, swap, one, other)


def _at_a_place(disk: SimDisk, name: str, rng: Random) -> Iterator[tuple[str, SimDisk]]:
    size = disk.contents(name).size
    pages = (size + PAGE - 1) // PAGE
    bit, at = rng.randrange(size * 8), rng.randrange(size)
    page, to_page = rng.randrange(pages), rng.randrange(pages)
    yield f"{name}: bit {bit} flipped", _harmed(disk, flip_bit, name, bit)
    yield f"{name}: page {page} zeroed", _harmed(disk, zero_page, name, page)
    yield f"{name}: page {page} stale", _harmed(disk, stale_page, name, page)
    yield f"{name}: cut at {at}", _harmed(disk, cut, name, at)
    if page != to_page:
        what = f"{name}: page {page} written to {to_page}"
        yield what, _harmed(disk, misdirect_page, name, page, name, to_page)


def _harmed(
    disk: SimDisk, harm: Callable[Concatenate[SimDisk, P], None], *args: P.args, **kwargs: P.kwargs
) -> SimDisk:
    copy = disk.crash(Choice())
    harm(copy, *args, **kwargs)
    return copy


def _page(contents: Contents, page: int) -> bytes:
    return contents.pages.get(page, ZERO_PAGE)
