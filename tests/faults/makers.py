"""Programs that make victims: processes that live until they are killed, one after the other.

Such a program has imported all it needs and forks a victim for each task, a line on its input. The
victim says what it did, a line at a time; behind the last one the program says `gone`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

TESTS = Path(__file__).parents[1]


class Victims:
    """Makes victims, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def live_and_die(self, task: str, lines: int) -> list[str]:
        """One life, killed when it has said so many lines; all that it said."""
        self._in.write(task)
        self._in.flush()
        word, _, pid = self._out.readline().strip().partition(" ")
        assert word == "pid", word
        said: list[str] = []
        for line in iter(self._out.readline, "gone\n"):
            assert line, "the program that makes victims has died"
            said.append(line.strip())
            if len(said) == lines:
                os.kill(int(pid), signal.SIGKILL)
        assert len(said) >= lines, "a victim died before it was killed"
        return said


@contextmanager
def victims(program: Path) -> Iterator[Victims]:
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    ) as process:
        yield Victims(process)
        assert process.stdin is not None
        process.stdin.close()
