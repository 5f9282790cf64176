"""A fold that dies anywhere and comes back equals one that never died, in every store.

The laws find both mutants: the one that stores the cursor before the data, and the one that moves
on before the application has applied the batch.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fold import BatchConfig
from penstock.kv.kv_types import KvUpdate, Op
from support.crashes import AdvanceFirst, CursorFirst, lives
from support.folds import DURABLE

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Few keys, so that they are overwritten; revisions are places in the log.
_changes = st.tuples(st.sampled_from("abc"), st.sampled_from([Op.PUT, Op.PUT, Op.DELETE, Op.PURGE]))
logs = st.lists(_changes, min_size=1, max_size=14)
deaths = st.lists(st.integers(1, 9), max_size=4)
batches = st.builds(
    BatchConfig,
    window=st.just(60.0),
    max=st.integers(1, 4),
    hydrate_window=st.just(60.0),
    hydrate_max=st.integers(1, 5),
)
KINDS = [name for name in DURABLE if "synced" not in name]


def log_of(changes: Sequence[tuple[str, Op]]) -> list[KvUpdate]:
    return [
        KvUpdate(op, key, b"%d" % number if op is Op.PUT else b"", number)
        for number, (key, op) in enumerate(changes, 1)
    ]


def lived(name: str, changes: Sequence[tuple[str, Op]], *rest: Any, **mutant: Any) -> str:
    with tempfile.TemporaryDirectory() as directory:
        return lives(DURABLE[name], Path(directory) / "fold", log_of(changes), *rest, **mutant)


@pytest.mark.parametrize("name", KINDS)
@given(log=logs, dies=deaths, batch=batches)
@settings(max_examples=25, deadline=None)
def test_fold_resumed_at_any_death_equals_one_never_stopped(
    name: str, log: list[tuple[str, Op]], dies: list[int], batch: BatchConfig
) -> None:
    assert lived(name, log, dies, batch) == ""


LOG = [("a", Op.PUT), ("b", Op.PUT), ("c", Op.PUT), ("d", Op.PUT)]
ONE_BY_ONE = BatchConfig(window=60.0, max=1, hydrate_window=60.0, hydrate_max=1)


@pytest.mark.parametrize("name", ["append-log", "sqlite"])
def test_cursor_stored_before_its_data_is_found_out(name: str) -> None:
    found = [lived(name, LOG, [death], ONE_BY_ONE, committer=CursorFirst) for death in range(1, 9)]
    assert "the fold is not what the bucket is" in found


@pytest.mark.parametrize("name", ["append-log", "sqlite"])
def test_moving_on_before_apply_has_returned_is_found_out(name: str) -> None:
    found = [lived(name, LOG, [death], ONE_BY_ONE, loop=AdvanceFirst) for death in range(1, 9)]
    assert any("was not applied" in wrong for wrong in found)
