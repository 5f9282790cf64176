"""Kernel statistics of a server process and its storage: CPU, memory, file system.

CPU is user plus system time of all threads of the process, including ended ones, read from the
process's CPU clock (nanoseconds) or, if that is refused, from /proc (clock ticks).
"""

import os
import time
from pathlib import Path

from penstock.bench.bench_error import BenchError

_CPU_CLOCK_BITS = 3
_CPU_CLOCK_SCHED = 2
_STAT_UTIME = 11  # fields of /proc/PID/stat, counted after the command's closing parenthesis
_STAT_STIME = 12


def cpu_seconds(pid: int) -> float:
    """Return the CPU time that the process has used so far."""
    try:
        # The clock id of another process's CPU clock on Linux, see clock_getcpuclockid(3).
        return time.clock_gettime((~pid << _CPU_CLOCK_BITS) | _CPU_CLOCK_SCHED)
    except OSError:
        return _cpu_seconds_by_ticks(pid)


def rss_bytes(pid: int) -> int:
    """Return the current resident memory."""
    return _status_bytes(pid, "VmRSS")


def rss_peak_bytes(pid: int) -> int:
    """Return the peak resident memory of the process."""
    return _status_bytes(pid, "VmHWM")


def filesystem(path: str) -> str:
    """Return the type of the file system of a path; syncing to a tmpfs, for example, is free."""
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
