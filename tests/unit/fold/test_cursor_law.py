"""Cursor after data: wherever a crash cuts the log, the cursor names nothing that is missing.

The mutant that writes the cursor first breaks this law, and the same check says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from faults.fold_victim import MUTANTS, update_of
from penstock.fold.store import pgss
from penstock.kv.kv_types import KvUpdate, Op
from support.folds import DURABLE, at, model

if TYPE_CHECKING:
    from pathlib import Path

    from support.folds import Kind

BATCHES = [(1, 6), (6, 7), (7, 15)]


def cuts_with_a_cursor_ahead(kind: Kind, path: Path) -> list[int]:
    """Where a crash would leave a cursor whose data is not there."""
    with kind.open(path) as store:
        for start, stop in BATCHES:
            store.apply([update_of(revision) for revision in range(start, stop)], at(stop - 1))
    data = path.read_bytes()
    ahead = []
    for size in range(len(pgss.HEADER), len(data) + 1):
        said = pgss.replay(data[:size])
        if refolded(said) != model(map(update_of, range(1, 15))):
            ahead.append(size)
    return ahead


def refolded(said: pgss.LogReplay) -> dict[str, object]:
    """What the fold becomes once the bucket has delivered everything after the cursor."""
    updates = [
        KvUpdate(Op.PUT, key, record[9:], int.from_bytes(record[1:9], "big"))
        for key, record in said.entries.items()
    ]
    return dict(model([*updates, *map(update_of, range(said.cursor.rank + 1, 15))]))


def test_no_cut_of_log_leaves_cursor_ahead_of_its_data(tmp_path: Path) -> None:
    assert cuts_with_a_cursor_ahead(DURABLE["append-log"], tmp_path / "log") == []


def test_log_that_writes_its_cursor_first_breaks_law(tmp_path: Path) -> None:
    assert cuts_with_a_cursor_ahead(MUTANTS["append-log"], tmp_path / "log")
