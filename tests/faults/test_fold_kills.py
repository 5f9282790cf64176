"""Processes are killed with SIGKILL while they fold: no cursor is ahead of its data.

What a killed process had applied is in the page cache, so nothing it said may be gone either. The
same test must find the mutants, whose cursor comes before the data.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest

from faults.fold_victim import BATCH_MAX, MUTANTS, Task, update_of
from faults.makers import Victims, victims
from support.folds import DURABLE, contents, model

if TYPE_CHECKING:
    from collections import Counter

LONG_ROUNDS = 10
VICTIM = Path(__file__).with_name("fold_victim.py")
KINDS = [name for name in DURABLE if "synced" not in name]
LIVES = 3
BATCHES_MAX = 20
MUTANT_LIVES_MAX = 40


def live_and_die(making: Victims, task: Task, batches: int) -> int:
    """One life, killed when it has folded so many batches; the last cursor it spoke of."""
    return int(making.live_and_die(task.line(), batches)[-1])


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
def test_killed_process_leaves_no_cursor_ahead_of_its_data(
    kind: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance = Random(kind)
    with victims(VICTIM) as making:
        for life in range(LIVES * rounds):
            task = Task(str(tmp_path / "fold"), kind, life)
            said = live_and_die(making, task, chance.randrange(1, BATCHES_MAX))
            assert wrong_with(task, said) == ""
            tried["folding processes killed"] += 1


@pytest.mark.parametrize("kind", MUTANTS)
def test_store_that_moves_its_cursor_first_is_found_out(kind: str, tmp_path: Path) -> None:
    with victims(VICTIM) as making:
        for life in range(MUTANT_LIVES_MAX):
            task = Task(str(tmp_path / f"fold {life}"), kind, life, mutant=True)
            live_and_die(making, task, 1)
            if "never the state" in wrong_with(task, 0):
                return
    raise AssertionError("no kill found the mutant")
