"""Processes that follow a bucket until they are killed with SIGKILL.

`victims` starts the program `faults/fold_follower.py`, which forks one process per life, so that a
life does not pay for the start of an interpreter.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from support.patience import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from faults.fold_follower import Follow

TESTS = Path(__file__).parents[1]
PROGRAM = TESTS / "faults" / "fold_follower.py"


@dataclass
class Victims:
    """Makes victims, one at a time."""

    process: asyncio.subprocess.Process

    async def live_and_die(self, task: Follow, words: int) -> list[str]:
        """One life, killed when it has said so much, or is at rest; what it said."""
        assert self.process.stdin is not None
        self.process.stdin.write(task.line())
        word, _, pid = (await self._line()).partition(" ")
        assert word == "pid", word
        said: list[str] = []
        try:
            while (line := await self._line()) != "gone":
                said.append(line)
                if len(said) == words or line in ("ready", "stale"):
                    _kill(int(pid))
        except BaseException:
            _kill(int(pid))  # the program waits for it
            raise
        return said

    async def _line(self) -> str:
        assert self.process.stdout is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await self.process.stdout.readline()
        assert line, "the program that makes victims has died"
        return line.decode().strip()


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@asynccontextmanager
async def victims() -> AsyncIterator[Victims]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(PROGRAM),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(TESTS), *sys.path])},
    )
    try:
        yield Victims(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        await process.wait()
