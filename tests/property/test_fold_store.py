"""Every fold store goes through the same random life as a dict, and always answers as it does.

Few keys, so that they are overwritten, deleted and made again. In between the store is closed and
opened, settled, cleared, or carried through an artifact; none of it may show.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.fold import SnapshotMeta
from penstock.kv.kv_types import WatchCursor
from support.folds import KINDS, contents, model
from support.updates import batches, cursors, keys

if TYPE_CHECKING:
    from penstock.kv.kv_types import KvUpdate
    from support.folds import Kind

EXAMPLES = 15
STEPS = 25

prefixes = st.sampled_from(["", "a", "a.", "a.b", "k" * 512, "ü", "x"])


class Life(RuleBasedStateMachine):
    kind: Kind

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.moves = 0
        self.store = self.kind.open(self.directory / "0")
        self.applied: list[KvUpdate] = []
        self.cursor = WatchCursor.NONE
        self.meta = SnapshotMeta()

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    @rule(batch=batches, cursor=cursors)
    def apply(self, batch: list[KvUpdate], cursor: WatchCursor) -> None:
        self.store.apply(batch, cursor)
        self.applied += batch
        self.cursor = cursor

    @rule(batch=batches, cursor=cursors, identity=st.sampled_from(["one", "two"]))
    def apply_with_origin(self, batch: list[KvUpdate], cursor: WatchCursor, identity: str) -> None:
        self.meta = SnapshotMeta(identity, ("a.",))
        self.store.apply(batch, cursor, meta=self.meta)
        self.applied += batch
        self.cursor = cursor

    @rule()
    def clear(self) -> None:
        self.store.clear()
        self.applied, self.cursor, self.meta = [], WatchCursor.NONE, SnapshotMeta()

    @rule()
    def finish_load(self) -> None:
        self.store.finish_load()

    @precondition(lambda self: self.kind.durable)
    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.kind.open(self.directory / f"{self.moves}")

    @precondition(lambda self: self.moves < 3)
    @rule(form=st.sampled_from([None, "append-log"]))
    def move_by_artifact(self, form: str | None) -> None:
        self.moves += 1
        artifact = self.directory / f"artifact {self.moves}"
        self.store.export_to(artifact, form=form)
        self.store.close()
        self.store = self.kind.imported(artifact, self.directory / f"{self.moves}")

    @rule(prefix=prefixes, after=st.none() | keys, limit=st.none() | st.integers(0, 4))
    def look(self, prefix: str, after: str | None, limit: int | None) -> None:
        wanted = sorted(
            key
            for key in model(self.applied)
            if key.startswith(prefix) and (after is None or key > after)
        )
        found = self.store.range(prefix, after=after, limit=limit)
        assert [one.key for one in found] == wanted[:limit]

    @invariant()
    def answers_as_the_model(self) -> None:
        expected = model(self.applied)
        assert contents(self.store) == expected
        assert self.store.count() == len(expected)
        assert self.store.cursor == self.cursor
        assert self.store.meta == self.meta
        asked = ["a", "k" * 700, "none"]
        assert self.store.get_many(asked) == [expected.get(key) for key in asked]


@pytest.mark.parametrize("name", KINDS)
def test_fold_store_is_dict_with_cursor(name: str) -> None:
    machine = type("Life", (Life,), {"kind": KINDS[name]})
    phases = [phase for phase in Phase if phase is not Phase.explain]
    case = machine.TestCase
    case.settings = settings(
        max_examples=EXAMPLES, stateful_step_count=STEPS, deadline=None, phases=phases
    )
    case().runTest()
