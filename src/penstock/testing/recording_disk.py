"""`RecordingDisk`: forwards calls to any disk and logs those that change it, for a replay.

The log holds every open, write, sync and name change that succeeded, and the marks that a test puts
between them ("this was acknowledged"). Reads are forwarded without a log entry. A failed call is
not logged, so a run with failing calls cannot be replayed; call `crash` on its `SimDisk` instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from penstock.testing.sim_disk import SimDisk

if TYPE_CHECKING:
    from penstock.store.io.disk import Bytes, Disk, File
    from penstock.testing.sim_files import Contents

_COPY_BYTES: Final = 1 << 40


@dataclass(frozen=True, slots=True)
class DiskCall:
    """A call that succeeded, on the directory, and possibly the file, with these numbers."""

    call: str
    directory: int
    name: str
    file: int = 0
    new: str = ""
    data: bytes = b""
    at: int = 0


@dataclass(frozen=True, slots=True)
class RecordedMark:
    """A value that the test records for this moment."""

    value: object


class _Log:
    """What the directories of one recording share."""

    def __init__(self) -> None:
        self.events: list[DiskCall | RecordedMark] = []
        self.files: dict[File, int] = {}
        self.files_opened = 0
        self.directories_opened = 0


class RecordingDisk:
    """Wraps a disk. `base` is a copy of the disk at the start, all of it treated as synced."""

    def __init__(self, inner: Disk, *, log: _Log | None = None) -> None:
        self._inner = inner
        self._log = log or _Log()
        self._number = self._log.directories_opened
        self._log.directories_opened += 1
        self.base = copy_of(inner) if log is None else SimDisk()

    @property
    def events(self) -> list[DiskCall | RecordedMark]:
        """All events so far, of this directory and those below."""
        return self._log.events

    def mark(self, value: object) -> None:
        """Append a value to the log."""
        self._log.events.append(RecordedMark(value))

    @property
    def path(self) -> str:
        return self._inner.path

    @property
    def descriptors(self) -> None:
        return None

    def open(self, name: str, *, create: bool = False, writable: bool = True) -> File:
        return self._opened("open", self._inner.open(name, create=create, writable=writable))

    def create(self, name: str) -> File:
        return self._opened("create", self._inner.create(name))

    def _opened(self, call: str, file: File) -> File:
        self._log.files_opened += 1
        self._log.files[file] = self._log.files_opened
        self._add(call, file.name, file=self._log.files_opened)
        return file

    def close_file(self, file: File) -> None:
        self._inner.close_file(file)
        self._log.files.pop(file, None)

    def pread(self, file: File, n: int, offset: int) -> bytes:
        return self._inner.pread(file, n, offset)

    def pwrite(self, file: File, data: Bytes, offset: int) -> None:
        self._inner.pwrite(file, data, offset)
        self._add("pwrite", file.name, file=self._log.files[file], data=bytes(data), at=offset)

    def fdatasync(self, file: File) -> None:
        self._inner.fdatasync(file)
        self._add("fdatasync", file.name, file=self._log.files[file])

    def preallocate(self, file: File, size: int) -> None:
        self._inner.preallocate(file, size)
        self._add("preallocate", file.name, file=self._log.files[file], at=size)

    def truncate(self, file: File, size: int) -> None:
        self._inner.truncate(file, size)
        self._add("truncate", file.name, file=self._log.files[file], at=size)

    def size(self, file: File) -> int:
        return self._inner.size(file)

    def read_small(self, name: str, bytes_max: int) -> bytes:
        return self._inner.read_small(name, bytes_max)

    def rename(self, old: str, new: str) -> None:
        self._inner.rename(old, new)
        self._add("rename", old, new=new)

    def unlink(self, name: str) -> None:
        self._inner.unlink(name)
        self._add("unlink", name)

    def mkdir(self, name: str) -> None:
        self._inner.mkdir(name)
        self._add("mkdir", name)

    def rmdir(self, name: str) -> None:
        self._inner.rmdir(name)
        self._add("rmdir", name)

    def subdir(self, name: str) -> RecordingDisk:
        below = RecordingDisk(self._inner.subdir(name), log=self._log)
        self._add("subdir", name, at=below._number)
        return below

    def sync_dir(self) -> None:
        self._inner.sync_dir()
        self._add("sync_dir", "")

    def files(self) -> list[str]:
        return self._inner.files()

    def directories(self) -> list[str]:
        return self._inner.directories()

    def free_bytes(self) -> int:
        return self._inner.free_bytes()

    def lock(self) -> None:
        self._inner.lock()

    def close(self) -> None:
        self._inner.close()

    def _add(
        self, call: str, name: str, *, file: int = 0, new: str = "", data: bytes = b"", at: int = 0
    ) -> None:
        self._log.events.append(DiskCall(call, self._number, name, file, new, data, at))


class DiskReplay:
    """Repeats the calls of a log, one by one, on its own simulated disk."""

    def __init__(self, base: SimDisk) -> None:
        self.disk = base
        self._directories: dict[int, SimDisk] = {0: base}
        self._files: dict[int, File] = {}

    def do(self, call: DiskCall) -> None:
        """Repeat the next call."""
        disk = self._directories[call.directory]
        if call.call == "subdir":
            self._directories[call.at] = disk.subdir(call.name)
        elif call.call in ("open", "create"):
            self._files[call.file] = disk.open(call.name, create=True)
        elif call.call == "rename":
            disk.rename(call.name, call.new)
        elif call.call == "sync_dir":
            disk.sync_dir()
        elif call.call in ("unlink", "mkdir", "rmdir"):
            {"unlink": disk.unlink, "mkdir": disk.mkdir, "rmdir": disk.rmdir}[call.call](call.name)
        else:
            self._to_file(disk, self._files[call.file], call)

    def contents(self, call: DiskCall) -> Contents:
        """Return the state of the file that a call used, whatever its current name is."""
        return self.disk.contents_of(self._files[call.file])

    def _to_file(self, disk: SimDisk, file: File, call: DiskCall) -> None:
        if call.call == "pwrite":
            disk.pwrite(file, call.data, call.at)
        elif call.call == "fdatasync":
            disk.fdatasync(file)
        elif call.call == "preallocate":
            disk.preallocate(file, call.at)
        else:
            assert call.call == "truncate", call
            disk.truncate(file, call.at)


def copy_of(disk: Disk) -> SimDisk:
    """Return a simulated disk with the same files and directories, all of them durable."""
    copy = SimDisk()
    _fill(copy, disk)
    return copy


def _fill(copy: SimDisk, disk: Disk) -> None:
    for name in disk.files():
        file = copy.create(name)
        copy.pwrite(file, disk.read_small(name, _COPY_BYTES), 0)
        copy.fdatasync(file)
        copy.close_file(file)
    for name in disk.directories():
        copy.mkdir(name)
        below = disk.subdir(name)
        _fill(copy.subdir(name), below)
        below.close()
    copy.sync_dir()


if TYPE_CHECKING:
    _conforms: type[Disk] = RecordingDisk
