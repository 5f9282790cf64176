"""Whatever happens to a store, what is derived from it is true of it, and rows are its updates."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.fold import FoldDigest, Index, Quarantine, Undecodable, digest_of
from penstock.fold.store import extensions
from penstock.fold.store.sqlite_rows import rows_of
from penstock.kv.bucket_records import updates_of
from penstock.kv.kv_types import KvEntry, KvUpdate, Op
from penstock.kv.update_batch import JoinedUpdates
from property.test_fold_columns import PREFIX, batch_of, rows
from support.folds import KINDS, at, contents

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fold import SnapshotStore
    from property.test_fold_columns import Row
    from support.folds import Kind

BULK = 5
"""So small that random batches are above and below it."""
changes = st.builds(
    KvUpdate,
    st.sampled_from(Op),
    st.sampled_from(["a", "b", "a.b", "k" * 500, "k" * 499 + "l"]),
    st.binary(max_size=3),
    st.integers(-1, 50),
)
deeds = st.lists(
    st.lists(changes, max_size=8)
    | st.sampled_from(["clear", "settle", "open again", "open without", "fail"]),
    max_size=8,
)


class OddLength:
    """Reads values of an odd length only."""

    name = "odd"

    def encode(self, value: bytes) -> bytes:
        return value

    def decode(self, data: bytes) -> bytes:
        if len(data) % 2 == 0:
            raise Undecodable("even")
        return data


def letters(entry: KvEntry) -> list[str]:
    return [f"{byte:x}" for byte in entry.value]


class Life:
    """A store with everything attached, through what happens to it."""

    def __init__(self, kind: Kind, path: Path) -> None:
        self.kind = kind
        self.path = path
        self.store = self.opened()

    def opened(self) -> SnapshotStore:
        store = self.kind.open(self.path)
        self.digest, self.index = FoldDigest(), Index("letters", letters)
        self.bad = Quarantine(OddLength())
        for extension in (self.digest, self.index, self.bad):
            store.attach(extension)
        return store

    def live(self, deed: str | list[KvUpdate]) -> None:
        if isinstance(deed, list):
            self.store.apply(deed, at(max((one.revision for one in deed), default=0) + 1))
        elif deed == "clear":
            self.store.clear()
        elif deed == "settle":
            self.store.finish_load()
        elif deed == "fail":
            with pytest.raises(ValueError, match="65535"):
                self.store.apply([KvUpdate(Op.DELETE, "a"), KvUpdate(Op.PUT, "x" * 70_000)], at(1))
        elif self.kind.durable:
            self.store.close()
            if deed == "open without":
                with self.kind.open(self.path) as store:
                    store.apply([KvUpdate(Op.PUT, "a", b"otherwise", 1)], store.cursor)
            self.store = self.opened()

    def check(self) -> None:
        store, held = self.store, contents(self.store)
        self.store.finish_load()
        assert self.digest.value == digest_of(store)
        terms = {(term, key) for key, entry in held.items() for term in letters(entry)}
        assert set(self.index.terms(store)) == terms
        bad = {key for key, entry in held.items() if len(entry.value) % 2 == 0}
        assert {one.key for one in self.bad.listed(store)} == bad


@pytest.fixture(autouse=True)
def _small_bulk() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extensions, "BULK_UPDATES", BULK)
        yield


@pytest.mark.parametrize("name", ["memory", "append-log", "sqlite", "lmdb", "rocksdb"])
@given(deeds=deeds)
@settings(max_examples=12, deadline=None)
def test_derived_rows_are_right_after_any_history(
    name: str, deeds: list[str | list[KvUpdate]]
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        life = Life(KINDS[name], Path(directory) / "fold")
        try:
            for deed in deeds:
                life.live(deed)
                if deed != "fail":
                    life.check()
        finally:
            life.store.close()


@given(st.lists(rows, max_size=3))
@settings(max_examples=100, deadline=None)
def test_columns_become_rows_their_updates_become(pieces: list[list[Row]]) -> None:
    columns = JoinedUpdates([updates_of(batch_of(piece), len(PREFIX)) for piece in pieces])
    ours, objects = rows_of(columns), rows_of(list(columns))
    assert list(ours.puts) == list(objects.puts)
    assert list(ours.deletes) == list(objects.deletes)
    assert not ours.tokens
    assert not objects.tokens
