"""What is derived from a fold changes with it, in the same commit, in every store."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from penstock.fold.artifact.digest import FoldDigest, Terms, as_hex, digest_of
from penstock.fold.derive.indexes import Index
from penstock.fold.derive.quarantine import Quarantine
from penstock.fold.derive.value_codecs import Json
from penstock.fold.ship.fleet_status import digest_of_artifact
from penstock.fold.store.extensions import BULK_UPDATES, Behind
from penstock.kv.kv_types import WatchCursor
from support.folds import at, contents, delete, put

if TYPE_CHECKING:
    from pathlib import Path

    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvEntry, KvUpdate
    from support.folds import Kind


def region(entry: KvEntry) -> str:
    return str(json.loads(entry.value)["region"])


def in_region(key: str, name: str, revision: int) -> KvUpdate:
    return put(key, json.dumps({"region": name}).encode(), revision)


def keys(index: Index, store: SnapshotStore, term: str) -> list[str]:
    return [entry.key for entry in index.find(store, term)]


def naive_digest(store: SnapshotStore) -> str:
    return as_hex(sum(map(Terms().of_entry, contents(store).values())))


def attached(store: SnapshotStore) -> tuple[FoldDigest, Index, Quarantine]:
    digest, index, bad = FoldDigest(), Index("region", region), Quarantine(Json(dict[str, str]))
    for one in (digest, index, bad):
        store.attach(one)
    return digest, index, bad


LIFE = [
    [in_region("a", "eu", 1), in_region("b", "us", 2)],
    [in_region("a", "us", 3), put("c", b"no json", 4), in_region("d", "eu", 5)],
    [delete("b", 6), in_region("c", "eu", 7), put("x" * 600, b'{"region":"eu"}', 8)],
    [put("d", b"broken", 9), in_region("e", "eu", 10), delete("e", 11)],
]


def test_digest_is_sum_of_its_entries_after_every_batch(store: SnapshotStore) -> None:
    digest = FoldDigest()
    store.attach(digest)
    assert digest.value == "00" * 32
    for batch in LIFE:
        store.apply(batch, at(batch[-1].revision))
        assert digest.value == naive_digest(store)
        assert digest.verify(store)


def test_index_matches_entries_after_every_batch(store: SnapshotStore) -> None:
    index = Index("region", region)
    store.attach(index)
    found = []
    for batch in LIFE:
        store.apply(batch, at(batch[-1].revision))
        found.append((keys(index, store, "eu"), keys(index, store, "us")))
    assert found == [
        (["a"], ["b"]),
        (["d"], ["a", "b"]),
        (["c", "d", "x" * 600], ["a"]),
        (["c", "x" * 600], ["a"]),
    ]
    assert [term for term, _ in index.terms(store)] == ["eu", "eu", "us"]
    assert list(index.terms(store, "us")) == [("us", "a")]
    assert list(index.terms(store, stop="eu")) == []
    assert list(index.keys(store, "eu", after="c")) == ["x" * 600]


def test_undecodable_entries_are_quarantined_until_they_decode(store: SnapshotStore) -> None:
    bad = Quarantine(Json(dict[str, str]))
    store.attach(bad)
    listed = []
    for batch in LIFE:
        store.apply(batch, at(batch[-1].revision))
        listed.append([(one.key, one.revision) for one in bad.listed(store)])
    assert listed == [[], [("c", 4)], [], [("d", 9)]]
    assert len(bad) == 1


def test_extension_attached_later_is_built_from_entries(store: SnapshotStore) -> None:
    for batch in LIFE:
        store.apply(batch, at(batch[-1].revision))
    digest, index, bad = attached(store)
    assert digest.value == naive_digest(store)
    assert keys(index, store, "eu") == ["c", "x" * 600]
    assert [one.key for one in bad.listed(store)] == ["d"]


def test_extensions_survive_reopening_store(durable: Kind, path: Path) -> None:
    with durable.open(path) as store:
        attached(store)
        for batch in LIFE[:2]:
            store.apply(batch, at(batch[-1].revision))
    with durable.open(path) as store:
        digest, index, bad = attached(store)
        assert digest.value == naive_digest(store)
        assert (keys(index, store, "us"), [one.key for one in bad.listed(store)]) == (
            ["a", "b"],
            ["c"],
        )
        for batch in LIFE[2:]:
            store.apply(batch, at(batch[-1].revision))
        assert digest.value == naive_digest(store)
        assert keys(index, store, "us") == ["a"]
        assert [one.key for one in bad.listed(store)] == ["d"]


def test_extensions_are_rebuilt_after_store_changed_without_them(durable: Kind, path: Path) -> None:
    with durable.open(path) as store:
        attached(store)
        store.apply(LIFE[0], at(2))
    with durable.open(path) as store:
        store.apply([delete("a")], at(2))  # the cursor does not tell
    with durable.open(path) as store:
        digest, index, _ = attached(store)
        assert digest.value == naive_digest(store)
        assert keys(index, store, "eu") == []


def test_cleared_store_has_empty_extensions(store: SnapshotStore) -> None:
    digest, index, bad = attached(store)
    for batch in LIFE:
        store.apply(batch, at(batch[-1].revision))
    store.clear()
    assert digest.value == "00" * 32
    assert list(index.terms(store)) == []
    assert list(bad.listed(store)) == []
    store.apply(LIFE[0], at(2))
    assert digest.value == naive_digest(store)
    assert keys(index, store, "eu") == ["a"]


def test_bulk_load_updates_extensions_when_it_is_committed(store: SnapshotStore) -> None:
    digest, index, bad = attached(store)
    batch = [in_region(f"k.{number:06d}", "eu", number + 1) for number in range(BULK_UPDATES)]
    store.apply(batch, at(BULK_UPDATES))
    for ask in (
        lambda: digest.value,
        lambda: keys(index, store, "eu"),
        lambda: [*bad.listed(store)],
    ):
        with pytest.raises(Behind):
            ask()
    store.apply([put("bad", b"", BULK_UPDATES + 1)], at(BULK_UPDATES + 1))
    store.finish_load()
    assert digest.value == naive_digest(store)
    assert len(keys(index, store, "eu")) == BULK_UPDATES
    assert [one.key for one in bad.listed(store)] == ["bad"]


def test_refused_batch_changes_no_extension(store: SnapshotStore) -> None:
    digest, index, bad = attached(store)
    store.apply(LIFE[0], at(2))
    before = digest.value
    too_long = put("k" * 70_000, b"{}", 4)
    with pytest.raises(ValueError, match="65535"):
        store.apply([in_region("a", "us", 3), too_long], at(4))
    assert digest.value == before == naive_digest(store)
    assert keys(index, store, "eu") == ["a"]
    assert list(bad.listed(store)) == []


def test_new_index_version_is_rebuilt(store: SnapshotStore) -> None:
    store.attach(Index("what", region))
    store.apply(LIFE[0], at(2))
    with pytest.raises(ValueError, match="attached already"):
        store.attach(Index("what", region, version=2))
    with pytest.raises(Behind):
        list(Index("what", region, version=2).find(store, "eu"))


def test_separate_reader_can_query_index(store: SnapshotStore) -> None:
    index = Index("region", region)
    store.attach(index)
    store.apply(LIFE[0], at(2))
    with store.reader() as reader:
        assert [entry.key for entry in index.find(reader, "us")] == ["b"]


def test_more_rows_than_one_page_are_found(store: SnapshotStore) -> None:
    index = Index("region", region)
    store.attach(index)
    batch = [in_region(f"k.{number:05d}", "eu", number + 1) for number in range(2_500)]
    store.apply(batch, at(2_500))
    assert len(keys(index, store, "eu")) == 2_500


def test_copy_in_any_backend_has_digest_of_original(kind: Kind, path: Path, tmp_path: Path) -> None:
    from penstock.fold import MemorySnapshot

    with kind.open(path) as store:
        for batch in LIFE:
            store.apply(batch, at(batch[-1].revision))
        store.export_to(tmp_path / "artifact", form="append-log")
        store.export_to(tmp_path / "own")
        with MemorySnapshot.import_from(tmp_path / "artifact") as copy:
            assert digest_of(copy) == digest_of(store)
        for artifact in ("artifact", "own"):
            assert digest_of_artifact(tmp_path / artifact) == (store.cursor, digest_of(store))


def test_clearing_cursor_invalidates_extension_notes(store: SnapshotStore) -> None:
    digest = FoldDigest()
    store.attach(digest)
    store.apply(LIFE[0], at(2))
    store.apply([], WatchCursor.NONE)
    assert digest.report().revision == 0
    assert digest.value == naive_digest(store)
