"""Spark drivers as processes of their own, to be killed: with their JVM, or worker by worker."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

#: What starts a Python of Spark's; the JVM's command line has the word too.
PYTHON_MARK = b"\0-m\0pyspark."


class Driver:
    """A program that drives Spark, with its JVM and workers. What it says is in its log."""

    def __init__(self, program: Path, *arguments: str, log: Path) -> None:
        self._log = log
        with log.open("ab") as out:
            self.process = subprocess.Popen(
                [sys.executable, str(program), *arguments],
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self._seen: set[int] = set()

    @property
    def is_done(self) -> bool:
        return self.process.poll() is not None

    def story(self) -> str:
        return self._log.read_text(errors="replace")[-4000:]

    def workers(self) -> list[int]:
        """Python processes under the driver's JVM."""
        found = {pid for pid in descendants(self.process.pid) if PYTHON_MARK in command_of(pid)}
        self._seen |= found
        return sorted(found)

    def kill(self) -> None:
        """Driver and JVM at once; workers are in another group, and live on for a moment."""
        self.workers()
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def bury(self) -> None:
        """Nothing is left of it."""
        if not self.is_done:
            self.kill()
        for pid in self._seen:
            if PYTHON_MARK in command_of(pid):
                kill(pid)


def descendants(pid: int) -> list[int]:
    parents: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        found += children
        waiting += children
    return found


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
