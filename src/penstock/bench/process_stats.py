"""What the kernel says about a server process and where it stores: CPU, memory, file system.

CPU is user plus system time of all threads of the process, those that ended included, read from
the process's CPU clock (nanoseconds) or, where that is refused, from /proc (clock ticks).
"""

import os
import time
from pathlib import Path

from penstock.bench.bench_error import BenchError

_CPU_CLOCK_BITS = 3
_CPU_CLOCK_SCHED = 2
_STAT_UTIME = 11  # fields of /proc/PID/stat, counted behind the command's closing parenthesis
_STAT_STIME = 12


def cpu_seconds(pid: int) -> float:
    """CPU time the process has used so far."""
    try:
        # The clock id Linux gives to the CPU clock of another process, see clock_getcpuclockid(3).
        return time.clock_gettime((~pid << _CPU_CLOCK_BITS) | _CPU_CLOCK_SCHED)
    except OSError:
        return _cpu_seconds_by_ticks(pid)


def rss_bytes(pid: int) -> int:
    """Resident memory now."""
    return _status_bytes(pid, "VmRSS")


def rss_peak_bytes(pid: int) -> int:
    """The most resident memory the process ever had."""
    return _status_bytes(pid, "VmHWM")


def filesystem(path: str) -> str:
    """The type of the file system a path is on: syncing to a tmpfs, say, costs nothing."""
    wanted = os.path.realpath(path)
    found, longest = "unknown", -1
    for line in Path("/proc/self/mounts").read_text().splitlines():
        place, kind = line.split()[1:3]
        inside = wanted == place or wanted.startswith(place.rstrip("/") + "/")
        if inside and len(place) >= longest:
            found, longest = kind, len(place)
    return found


def _cpu_seconds_by_ticks(pid: int) -> float:
    fields = _read(pid, "stat").rpartition(")")[2].split()
    ticks = int(fields[_STAT_UTIME]) + int(fields[_STAT_STIME])
    return ticks / os.sysconf("SC_CLK_TCK")


def _status_bytes(pid: int, name: str) -> int:
    for line in _read(pid, "status").splitlines():
        key, _, value = line.partition(":")
        if key == name:
            return int(value.split()[0]) * 1024
    raise BenchError(f"process {pid} has no {name}: did it end?")


def _read(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError as error:
        raise BenchError(f"cannot read about process {pid}: {error.strerror}") from None
