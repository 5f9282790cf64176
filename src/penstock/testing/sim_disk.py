"""`SimDisk`: a disk in memory, with power cuts and failing calls; the counterpart of `RealDisk`.

It follows the same protocol and raises the same errors. `crash` returns the disk as a power cut
would leave it: synced data survives, and the choice (or a seed) decides on the rest; the original
disk continues unharmed, so a test can cut one run many times. `fail_nth` makes the n-th call fail.
Arguments and seeds decide everything: the same seed gives the same outcome.

For tests only. One thread.
"""

from __future__ import annotations

import errno as codes
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Final

from penstock.store.errors import SyncFailed, failure
from penstock.store.io.disk import Bytes, File, check_name
from penstock.testing.sim_files import ByChance, Choice, Contents, SimDirectory

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk
    from penstock.testing.sim_files import Node

CAPACITY_BYTES: Final = 1 << 40
"""The reported capacity of a disk without a set capacity."""
_FIRST_DESCRIPTOR: Final = 1000
_CLOSED: Final = -1


class DiskFault(Enum):
    """How a call fails."""

    EIO = "EIO"
    """Any call: fails and has no effect."""
    ENOSPC = "ENOSPC"
    """A call that needs space: fails and has no effect."""
    SHORT_WRITE = "short write"
    """A write: the first half is written, then the disk is full."""
    SYNC_ERROR = "sync error"
    """A sync: fails, and anything that was not synced before may be lost."""


_SYNCS: Final = frozenset({"fdatasync", "sync_dir"})
_WRITES: Final = frozenset({"pwrite", "preallocate"})
_GROWS: Final = _WRITES | {"create", "mkdir"}
_ANY: Final = _GROWS | _SYNCS | {"open", "pread", "truncate", "rename", "unlink", "rmdir", "list"}
_STRIKES: Final = {
    DiskFault.EIO: _ANY,
    DiskFault.ENOSPC: _GROWS,
    DiskFault.SHORT_WRITE: _WRITES,
    DiskFault.SYNC_ERROR: _SYNCS,
}
_ERRNO: Final = {DiskFault.ENOSPC: codes.ENOSPC, DiskFault.SHORT_WRITE: codes.ENOSPC}


class _Machine:
    """What all directories of one simulated disk share."""

    def __init__(self, root: SimDirectory, capacity: int | None) -> None:
        self.root = root
        self.capacity = capacity
        """None: unlimited, and the used space is not computed."""
        self.handles: dict[int, tuple[Contents, bool]] = {}
        self.descriptor = _FIRST_DESCRIPTOR
        self.number = root.number
        self.fault: DiskFault | None = None
        self.calls_left = 0
        self.for_ever = False
        self.struck = 0

    def strikes(self, call: str) -> DiskFault | None:
        """Count a call; return the fault it must fail with, or None."""
        if self.fault is None or call not in _STRIKES[self.fault]:
            return None
        self.calls_left -= 1
        if self.calls_left > 0 or (self.struck and not self.for_ever):
            return None
        self.struck += 1
        return self.fault

    def next_number(self) -> int:
        self.number += 1
        return self.number

    def free(self) -> int:
        capacity = CAPACITY_BYTES if self.capacity is None else self.capacity
        return max(0, capacity - _used(self.root))

    def room(self, growth: int) -> int:
        """Return how much of this growth of a file fits."""
        if growth <= 0 or self.capacity is None:
            return growth
        return min(growth, self.free())


class SimDisk:
    """A directory of the simulated disk; without arguments, the root of a new empty disk."""

    def __init__(
        self,
        *,
        path: str = "sim",
        directory: SimDirectory | None = None,
        machine: _Machine | None = None,
    ) -> None:
        self._path = path
        self._directory = directory or SimDirectory(number=0)
        self._machine = machine or _Machine(self._directory, None)
        self._closed = False

    # -- power cuts and faults

    def crash(self, choice: Choice | int) -> SimDisk:
        """Return the root of the disk after a power cut now; an integer seeds a random choice."""
        if isinstance(choice, int):
            choice = ByChance(Random(choice))
        root = self._machine.root.after_power_cut(choice)
        machine = _Machine(root, self._machine.capacity)
        machine.number = self._machine.number
        return SimDisk(directory=root, machine=machine)

    def fail_nth(self, n: int, fault: DiskFault, *, for_ever: bool = False) -> None:
        """Fail the n-th call from now that this fault applies to, and all later ones if
        `for_ever`."""
        machine = self._machine
        machine.fault, machine.calls_left, machine.for_ever, machine.struck = fault, n, for_ever, 0

    def heal(self) -> None:
        """Stop the faults. Failed syncs stay failed."""
        self._machine.fault = None

    @property
    def faults_struck(self) -> int:
        """Calls that failed since `fail_nth`; 0 means the run made fewer than n such calls."""
        return self._machine.struck

    def set_capacity(self, capacity: int) -> None:
        """Set the size of the disk; writes beyond it fail with `DiskFull`."""
        self._machine.capacity = capacity

    def contents(self, name: str) -> Contents:
        """Return the state of a file, for damage and for tests of the simulator."""
        node = self._node("open", name)
        assert isinstance(node, Contents)
        return node

    def contents_of(self, file: File) -> Contents:
        """Return the state of an open file."""
        return self._contents("open", file)

    @property
    def directory(self) -> SimDirectory:
        """The state of the names here, for damage and for tests of the simulator."""
        return self._directory

    # -- the protocol: files

    @property
    def path(self) -> str:
        return self._path

    @property
    def descriptors(self) -> None:
        return None

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        check_name(self._path, "open", name)
        if create and name not in self._directory.names:
            self._begin("create", name)
            self._directory.make(name, Contents(self._machine.next_number()))
        else:
            self._begin("open", name)
        return self._handle(name, writable=writable)

    def create(self, name: str) -> File:
        check_name(self._path, "open", name)
        self._begin("create", name)
        if name in self._directory.names:
            raise failure(self._place(name), "open", codes.EEXIST)
        self._directory.make(name, Contents(self._machine.next_number()))
        return self._handle(name, writable=True)

    def _handle(self, name: str, *, writable: bool) -> File:
        node = self._node("open", name)
        if isinstance(node, SimDirectory):
            raise failure(self._place(name), "open", codes.EISDIR)
        self._machine.descriptor += 1
        self._machine.handles[self._machine.descriptor] = (node, writable)
        file = File(name, self._machine.descriptor, node.number)
        file.failed = node.failed
        return file

    def close_file(self, file: File) -> None:
        if file.fileno() != _CLOSED:
            self._machine.handles.pop(file.detach(), None)

    def pread(self, file: File, n: int, offset: int) -> bytes:
        contents = self._contents("pread", file)
        self._begin("pread", file.name, open_directory=False)
        if n < 0 or offset < 0:
            raise failure(self._place(file.name), "pread", codes.EINVAL)
        return contents.read(n, offset)

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        self._write("pwrite", file, bytes(data), offset)

    def _write(self, call: str, file: File, data: bytes, offset: int) -> None:
        contents = self._contents(call, file, writable=True)
        if offset < 0:
            raise failure(self._place(file.name), call, codes.EINVAL)
        growth = offset + len(data) - contents.size
        fits = max(0, len(data) - growth + self._machine.room(growth))
        struck = self._machine.strikes(call)
        if struck is not None:
            fits = len(data) // 2 if struck is DiskFault.SHORT_WRITE else 0
        contents.write(data[:fits], offset)
        if struck is not None:
            raise failure(self._place(file.name), call, _ERRNO.get(struck, codes.EIO))
        if fits < len(data):
            raise failure(self._place(file.name), call, codes.ENOSPC)

    def fdatasync(self, file: File) -> None:
        contents = self._contents("fdatasync", file)
        if file.failed or contents.failed:
            file.failed = True
            raise SyncFailed(self._place(file.name), "fdatasync", codes.EIO, "failed before")
        if self._machine.strikes("fdatasync") is not None:
            file.failed = contents.failed = True
            raise SyncFailed(self._place(file.name), "fdatasync", codes.EIO)
        contents.sync()

    def preallocate(self, file: File, size: int) -> None:
        contents = self._contents("preallocate", file, writable=True)
        before = contents.size
        if size <= before:
            return
        try:
            self._write("preallocate", file, bytes(size - before), before)
        except BaseException:
            contents.truncate(before)
            raise

    def truncate(self, file: File, size: int) -> None:
        contents = self._contents("truncate", file)
        self._begin("truncate", file.name, open_directory=False)
        if size < 0 or not self._machine.handles[file.fileno()][1]:
            raise failure(self._place(file.name), "truncate", codes.EINVAL)
        contents.truncate(size)

    def size(self, file: File) -> int:
        return self._contents("size", file).size

    def read_small(self, name: str, bytes_max: int) -> bytes:
        file = self.open(name, writable=False)
        try:
            data = self.pread(file, bytes_max + 1, 0)
        finally:
            self.close_file(file)
        if len(data) > bytes_max:
            raise failure(self._place(name), "read", codes.EFBIG)
        return data

    # -- the protocol: names

    def rename(self, old: str, new: str) -> None:
        check_name(self._path, "rename", old)
        check_name(self._path, "rename", new)
        self._begin("rename", old)
        node, target = self._node("rename", old), self._directory.names.get(new)
        if target is not None and target is not node:
            self._check_replaceable(old, node, target)
        self._directory.rename(old, new)

    def _check_replaceable(self, old: str, node: Node, target: Node) -> None:
        refused = 0
        if isinstance(node, SimDirectory):
            if isinstance(target, Contents):
                refused = codes.ENOTDIR
            elif target.names:
                refused = codes.ENOTEMPTY
        elif isinstance(target, SimDirectory):
            refused = codes.EISDIR
        if refused:
            raise failure(self._place(old), "rename", refused)

    def unlink(self, name: str) -> None:
        check_name(self._path, "unlink", name)
        self._begin("unlink", name)
        if isinstance(self._node("unlink", name), SimDirectory):
            raise failure(self._place(name), "unlink", codes.EISDIR)
        self._directory.remove(name)

    def mkdir(self, name: str) -> None:
        check_name(self._path, "mkdir", name)
        self._begin("mkdir", name)
        if name in self._directory.names:
            raise failure(self._place(name), "mkdir", codes.EEXIST)
        self._directory.make(name, SimDirectory(self._machine.next_number()))

    def rmdir(self, name: str) -> None:
        check_name(self._path, "rmdir", name)
        self._begin("rmdir", name)
        node = self._node("rmdir", name)
        if isinstance(node, Contents):
            raise failure(self._place(name), "rmdir", codes.ENOTDIR)
        if node.names:
            raise failure(self._place(name), "rmdir", codes.ENOTEMPTY)
        self._directory.remove(name)

    def subdir(self, name: str) -> SimDisk:
        check_name(self._path, "subdir", name)
        self._begin("open", name)
        node = self._node("subdir", name)
        if isinstance(node, Contents):
            raise failure(self._place(name), "subdir", codes.ENOTDIR)
        return SimDisk(path=self._place(name), directory=node, machine=self._machine)

    def sync_dir(self) -> None:
        if self._directory.failed:
            raise SyncFailed(self._path, "sync_dir", codes.EIO, "failed before")
        if self._closed:
            raise failure(self._path, "sync_dir", codes.EBADF)
        if self._machine.strikes("sync_dir") is not None:
            self._directory.failed = True
            raise SyncFailed(self._path, "sync_dir", codes.EIO)
        self._directory.sync()

    def files(self) -> list[str]:
        self._begin("list", "")
        return sorted(n for n, node in self._directory.names.items() if isinstance(node, Contents))

    def directories(self) -> list[str]:
        self._begin("list", "")
        return sorted(
            n for n, node in self._directory.names.items() if isinstance(node, SimDirectory)
        )

    # -- the protocol: the directory

    def free_bytes(self) -> int:
        return self._machine.free()

    def lock(self) -> None:
        if self._closed:
            raise failure(self._path, "lock", codes.EBADF)
        if self._directory.owner not in (None, self):
            raise failure(self._path, "lock", codes.EWOULDBLOCK)
        self._directory.owner = self

    def close(self) -> None:
        self._closed = True
        if self._directory.owner is self:
            self._directory.owner = None

    def _begin(self, call: str, name: str, *, open_directory: bool = True) -> None:
        if open_directory and self._closed:
            raise failure(self._place(name), call, codes.EBADF)
        struck = self._machine.strikes(call)
        if struck is not None:
            raise failure(self._place(name), call, _ERRNO.get(struck, codes.EIO))

    def _contents(self, call: str, file: File, *, writable: bool = False) -> Contents:
        contents, may_write = self._machine.handles.get(file.fileno(), (None, False))
        if contents is None or (writable and not may_write):
            raise failure(self._place(file.name), call, codes.EBADF)
        return contents

    def _node(self, call: str, name: str) -> Node:
        node = self._directory.names.get(name)
        if node is None:
            raise failure(self._place(name), call, codes.ENOENT)
        return node

    def _place(self, name: str) -> str:
        return f"{self._path}/{name}" if name else self._path


def _used(directory: SimDirectory) -> int:
    return sum(
        node.size if isinstance(node, Contents) else _used(node)
        for node in directory.names.values()
    )


if TYPE_CHECKING:
    _conforms: type[Disk] = SimDisk
