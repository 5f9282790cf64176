"""Processes are killed with SIGKILL while they fold: no cursor is ahead of its data.

What a killed process had applied is in the page cache, so nothing it said may be gone either. The
same test must find the mutants, whose cursor comes before the data.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import IO, TYPE_CHECKING

import pytest

from faults.fold_victim import BATCH_MAX, MUTANTS, Task, update_of
from support_folds import DURABLE, contents, model

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Iterator

LONG_ROUNDS = 10
VICTIM = Path(__file__).with_name("fold_victim.py")
KINDS = [name for name in DURABLE if "synced" not in name]
LIVES = 3
BATCHES_MAX = 20
MUTANT_LIVES_MAX = 40


class Victims:
    """Makes victims, one at a time."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._in: IO[str] = process.stdin
        self._out: IO[str] = process.stdout

    def live_and_die(self, task: Task, batches: int) -> int:
        """One life, killed when it has folded so many batches; the last cursor it spoke of."""
        self._in.write(task.line())
        self._in.flush()
        word, _, pid = self._out.readline().strip().partition(" ")
        assert word == "pid", word
        last = 0
        for line in iter(self._out.readline, "gone\n"):
            assert line, "the program that makes victims has died"
            last = int(line)
            batches -= 1
            if batches == 0:
                os.kill(int(pid), signal.SIGKILL)
        assert batches <= 0, "a victim died before it was killed"
        return last


@contextmanager
def victims(program: Path = VICTIM) -> Iterator[Victims]:
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, str(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([tests, *sys.path])},
    ) as process:
        yield Victims(process)
        assert process.stdin is not None
        process.stdin.close()


def wrong_with(task: Task, said: int) -> str:
    """What is wrong with the store that is left; nothing may be."""
    with task.open() as store:
        cursor, found = store.cursor.rank, contents(store)
    if cursor < said:
        return f"the cursor is {cursor}, but {said} was folded"
    # Data may be ahead of the cursor by part of the batch that was being folded.
    for ahead in range(BATCH_MAX):
        if found == model(map(update_of, range(1, cursor + ahead + 1))):
            return ""
    return f"what is there was never the state at {cursor} or after it"


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_leaves_no_cursor_ahead_of_its_data(
    kind: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance = Random(kind)
    with victims() as making:
        for life in range(LIVES * rounds):
            task = Task(str(tmp_path / "fold"), kind, life)
            said = making.live_and_die(task, chance.randrange(1, BATCHES_MAX))
            assert wrong_with(task, said) == ""
            tried["folding processes killed"] += 1


@pytest.mark.parametrize("kind", MUTANTS)
def test_a_store_that_moves_its_cursor_first_is_found_out(kind: str, tmp_path: Path) -> None:
    with victims() as making:
        for life in range(MUTANT_LIVES_MAX):
            task = Task(str(tmp_path / f"fold {life}"), kind, life, mutant=True)
            making.live_and_die(task, 1)
            if "never the state" in wrong_with(task, 0):
                return
    raise AssertionError("no kill found the mutant")
