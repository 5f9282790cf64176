"""Processes are killed with SIGKILL while they fold: what is derived is true of what is there.

A table of the application's counts every change exactly once. The same test must find the mutant,
whose table is not in the transaction of the fold.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from faults.derived_victim import DerivedTask, size_of
from faults.fold_victim import update_of
from faults.makers import victims
from faults.test_fold_kills import BATCHES_MAX, KINDS, LIVES, MUTANT_LIVES_MAX, live_and_die
from penstock.fold.artifact.digest import FoldDigest
from penstock.fold.derive.indexes import Index
from support.folds import contents

LONG_ROUNDS = 10
VICTIM = Path(__file__).with_name("derived_victim.py")


def counted(path: Path) -> Counter[str]:
    db = sqlite3.connect(path)
    try:
        return Counter(dict(db.execute("SELECT key, n FROM changes")))
    finally:
        db.close()


def changes_up_to(revision: int) -> Counter[str]:
    return Counter(update_of(number).key for number in range(1, revision + 1))


def check_derived(task: DerivedTask) -> int:
    """The digest and the index are those of the entries; the cursor there is."""
    with task.open() as store:
        digest, index = store.attached
        assert isinstance(digest, FoldDigest)
        assert isinstance(index, Index)
        assert digest.verify(store)
        terms = sorted((size_of(one), key) for key, one in contents(store).items())
        assert list(index.terms(store)) == terms
        return store.cursor.rank


@pytest.mark.parametrize("kind", KINDS)
def test_killed_process_leaves_what_is_derived_true_and_every_change_counted_once(
    kind: str, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance = Random(kind)
    path = tmp_path / "fold"
    with victims(VICTIM) as making:
        for life in range(LIVES * rounds):
            task = DerivedTask(str(path), kind, life)
            said = live_and_die(making, task, chance.randrange(1, BATCHES_MAX))
            cursor = check_derived(task)
            assert cursor >= said
            if kind == "sqlite":
                assert counted(path) == changes_up_to(cursor)
            tried["folding processes with derived rows killed"] += 1


def test_table_outside_transaction_is_found_out(tmp_path: Path) -> None:
    with victims(VICTIM) as making:
        for life in range(MUTANT_LIVES_MAX):
            path = tmp_path / f"fold {life}"
            task = DerivedTask(str(path), "sqlite", life, mutant=True)
            live_and_die(making, task, 1)
            with task.open() as store:
                cursor = store.cursor.rank
            if counted(Path(f"{path}.changes")) != changes_up_to(cursor):
                return
    raise AssertionError("no kill found the mutant")
