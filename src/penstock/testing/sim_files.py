"""The files of a simulated machine, and what a power cut may destroy: the state of `SimDisk`.

A file consists of pages. For every page changed since the last sync the simulation keeps all
versions, the durable one first, and all sizes of the file; a directory keeps the name changes since
its last sync. At a power cut a `Choice` picks, independently, one version of every page (or of
every 512-byte sector of it), one size, and the name changes that took place. That allows more
outcomes than any one file system does, but never loses a synced byte or name.

No file calls, no clock; all randomness comes from the choice that is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from random import Random

PAGE: Final = 4096
SECTOR: Final = 512
"""The disk writes whole sectors: the smallest part of a write that persists or is lost."""
VERSIONS_MAX: Final = 64
"""Maximum unsynced versions kept of one page; the middle ones are dropped first."""
ZERO_PAGE: Final = bytes(PAGE)


class Contents:
    """The bytes of one file: as a reader sees them, and as the disk may hold them."""

    __slots__ = ("failed", "number", "pages", "size", "sizes", "stale", "versions")

    def __init__(self, number: int) -> None:
        self.number = number
        self.failed = False
        self.size = 0
        self.pages: dict[int, bytes] = {}
        self.versions: dict[int, list[bytes]] = {}
        """Pages changed since the last sync: durable version first, newest last."""
        self.sizes = [0]
        """The sizes since the last sync, in the same order."""
        self.stale: dict[int, bytes] = {}
        """What each page held before its last durable change: a lost write leaves this."""

    def read(self, n: int, offset: int) -> bytes:
        stop = min(offset + n, self.size)
        if offset >= stop:
            return b""
        first, last = offset // PAGE, (stop - 1) // PAGE
        whole = b"".join([self.pages.get(page, ZERO_PAGE) for page in range(first, last + 1)])
        return whole[offset - first * PAGE : stop - first * PAGE]

    def write(self, data: bytes, offset: int) -> None:
        stop = offset + len(data)
        for page in range(offset // PAGE, (stop + PAGE - 1) // PAGE):
            start = page * PAGE
            a, b = max(offset, start), min(stop, start + PAGE)
            old = self.pages.get(page, ZERO_PAGE)
            self._put(page, old[: a - start] + data[a - offset : b - offset] + old[b - start :])
        if data and stop > self.size:
            self._resize(stop)

    def truncate(self, size: int) -> None:
        for page in [page for page in self.pages if (page + 1) * PAGE > size]:
            keep = max(0, size - page * PAGE)
            self._put(page, self.pages[page][:keep].ljust(PAGE, b"\0"))
        self._resize(size)

    def sync(self) -> None:
        for page, versions in self.versions.items():
            self.stale[page] = versions[0]
        self.versions.clear()
        self.sizes = [self.size]

    def is_synced(self) -> bool:
        return not self.versions and len(self.sizes) == 1

    def overwrite_at_rest(self, page: int, data: bytes) -> None:
        """Damage a page: the disk holds and every reader gets these bytes, synced or not."""
        self.pages[page] = data
        self.versions.pop(page, None)

    def cut_at_rest(self, size: int) -> None:
        """Damage the file: everything after `size` is lost, synced or not."""
        self.truncate(size)
        self.sizes = [size]
        for page in [page for page in self.versions if (page + 1) * PAGE > size]:
            del self.versions[page]

    def after_power_cut(self, choice: Choice) -> Contents:
        """Return a file with the contents that the choice lets survive, all of it durable."""
        image = Contents(self.number)
        image.pages = self.pages.copy()
        image.stale = self.stale.copy()
        if not self.is_synced():
            for page, versions in self.versions.items():
                image.pages[page] = choice.page(self, page, versions)
            image.size = choice.size(self, self.sizes)
            if image.size < max(self.sizes):
                image.truncate(image.size)
        else:
            image.size = self.size
        image.versions.clear()
        image.sizes = [image.size]
        return image

    def _put(self, page: int, data: bytes) -> None:
        old = self.pages.get(page, ZERO_PAGE)
        if data == old:
            return
        self.pages[page] = data
        versions = self.versions.setdefault(page, [old])
        versions.append(data)
        if len(versions) > VERSIONS_MAX:
            del versions[VERSIONS_MAX // 2]

    def _resize(self, size: int) -> None:
        self.size = size
        if self.sizes[-1] != size:
            self.sizes.append(size)


class FileChange(Enum):
    """The kinds of changes to the names of a directory."""

    MADE = "made"
    REMOVED = "removed"
    RENAMED = "renamed"


@dataclass(frozen=True, slots=True, eq=False)
class NameChange:
    """One change since the last sync of the directory; it takes place wholly or not at all."""

    change: FileChange
    name: str
    node: Node
    new: str = ""


@dataclass(slots=True, eq=False)
class SimDirectory:
    """The names of one directory, the durable ones, and the changes since."""

    number: int
    names: dict[str, Node] = field(default_factory=dict)
    durable: dict[str, Node] = field(default_factory=dict)
    pending: list[NameChange] = field(default_factory=list)
    failed: bool = False
    owner: object = None

    def make(self, name: str, node: Node) -> None:
        self._change(NameChange(FileChange.MADE, name, node))

    def remove(self, name: str) -> None:
        self._change(NameChange(FileChange.REMOVED, name, self.names[name]))

    def rename(self, old: str, new: str) -> None:
        if old != new:
            self._change(NameChange(FileChange.RENAMED, old, self.names[old], new))

    def sync(self) -> None:
        self.durable = self.names.copy()
        self.pending.clear()

    def after_power_cut(self, choice: Choice) -> SimDirectory:
        """Return a directory with the names, and their files, that the choice lets survive."""
        names = self.durable
        if self.pending:
            names = names.copy()
            kept = choice.names(self, self.pending)
            for change, keep in zip(self.pending, kept, strict=True):
                if keep:
                    _apply(names, change)
        survived = {name: node.after_power_cut(choice) for name, node in names.items()}
        return SimDirectory(self.number, survived, survived.copy())

    def _change(self, change: NameChange) -> None:
        self.pending.append(change)
        _apply(self.names, change)


Node: TypeAlias = Contents | SimDirectory


def _apply(names: dict[str, Node], change: NameChange) -> None:
    """Apply a change, unless an earlier change that it depends on did not take place."""
    if change.change is FileChange.MADE:
        names.setdefault(change.name, change.node)
    elif names.get(change.name) is change.node:
        del names[change.name]
        if change.change is FileChange.RENAMED:
            names[change.new] = change.node


class Choice:
    """Decides what a power cut leaves. This one keeps everything."""

    def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
        """Return the page's contents, built from the versions; the durable one is first."""
        return versions[-1]

    def size(self, contents: Contents, sizes: list[int]) -> int:
        """Return one of the sizes the file has had; the durable one is first."""
        return sizes[-1]

    def names(self, directory: SimDirectory, pending: list[NameChange]) -> list[bool]:
        """Return which of the changes took place."""
        return [True] * len(pending)


class Lose(Choice):
    """Loses unsynced contents, sizes or names, each as a whole."""

    def __init__(self, *, pages: bool = True, sizes: bool = True, names: bool = True) -> None:
        self._pages = 0 if pages else -1
        self._sizes = 0 if sizes else -1
        self._keep_names = not names

    def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
        return versions[self._pages]

    def size(self, contents: Contents, sizes: list[int]) -> int:
        return sizes[self._sizes]

    def names(self, directory: SimDirectory, pending: list[NameChange]) -> list[bool]:
        return [self._keep_names] * len(pending)


class ByChance(Choice):
    """Any page and any sector at any version, any size, any subset of the names."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def page(self, contents: Contents, page: int, versions: list[bytes]) -> bytes:
        if self._rng.random() < 0.5:
            return self._rng.choice(versions)
        new = self._rng.choice(versions)
        old = self._rng.choice(versions)
        bits = self._rng.getrandbits(PAGE // SECTOR)
        return b"".join(
            [
                (new if bits >> i & 1 else old)[i * SECTOR : (i + 1) * SECTOR]
                for i in range(PAGE // SECTOR)
            ]
        )

    def size(self, contents: Contents, sizes: list[int]) -> int:
        return self._rng.choice(sizes)

    def names(self, directory: SimDirectory, pending: list[NameChange]) -> list[bool]:
        return [self._rng.random() < 0.5 for _ in pending]
