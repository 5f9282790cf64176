"""A batch and its cursor go in together; the last update of a key wins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.fold import FoldStoreError, SnapshotMeta
from penstock.fold.store.value_record import KEY_BYTES_MAX
from penstock.kv.kv_types import SYNTHETIC, KvUpdate, Op, WatchCursor
from support.folds import at, contents, delete, entry, model, purge, put

if TYPE_CHECKING:
    from penstock.fold import SnapshotStore

MANY = 2_500
"""More than two pages."""


def test_new_store_is_empty_and_has_no_cursor(store: SnapshotStore) -> None:
    assert contents(store) == {}
    assert store.count() == 0
    assert store.cursor == WatchCursor.NONE
    assert store.meta == SnapshotMeta()


def test_put_value_is_readable_under_its_version(store: SnapshotStore) -> None:
    store.apply([put("a", b"1", 7)], at(7))
    assert store.get("a") == entry("a", b"1", 7)
    assert store.cursor == at(7)


def test_later_put_replaces(store: SnapshotStore) -> None:
    store.apply([put("a", b"1", 1)], at(1))
    store.apply([put("a", b"2", 2)], at(2))
    assert contents(store) == {"a": entry("a", b"2", 2)}


@pytest.mark.parametrize("gone", [delete, purge])
def test_deleted_and_purged_keys_are_missing(store: SnapshotStore, gone: type) -> None:
    store.apply([put("a", b"1", 1), put("b", b"2", 2)], at(2))
    store.apply([gone("a", 3)], at(3))
    assert store.get("a") is None
    assert contents(store) == {"b": entry("b", b"2", 2)}
    assert store.cursor == at(3)


def test_last_update_of_key_in_batch_wins(store: SnapshotStore) -> None:
    batch = [put("a", b"1", 1), delete("a", 2), put("b", b"1", 3), put("b", b"2", 4)]
    batch += [put("c", b"1", 5), delete("c", 6), delete("d", 7), put("d", b"d", 8)]
    store.apply(batch, at(8))
    assert contents(store) == model(batch)


def test_deleting_missing_key_only_moves_cursor(store: SnapshotStore) -> None:
    store.apply([delete("never", 4)], at(4))
    assert contents(store) == {}
    assert store.cursor == at(4)


def test_empty_batch_moves_cursor(store: SnapshotStore) -> None:
    store.apply([put("a", b"1", 1)], at(1))
    store.apply([], at(9))
    assert store.cursor == at(9)
    assert store.count() == 1


def test_synthetic_deletes_are_applied_under_old_cursor(store: SnapshotStore) -> None:
    store.apply([put("a", b"1", 1), put("b", b"2", 2)], at(2))
    store.apply([KvUpdate(Op.DELETE, "a", reason=SYNTHETIC)], at(2))
    assert list(contents(store)) == ["b"]
    assert store.cursor == at(2)


def test_applying_batch_again_changes_nothing(store: SnapshotStore) -> None:
    batch = [put("a", b"1", 1), put("b", b"2", 2), delete("a", 3)]
    for _ in range(3):
        store.apply(batch, at(3))
    assert contents(store) == model(batch)


def test_empty_values_are_values(store: SnapshotStore) -> None:
    store.apply([put("a", b"", 1)], at(1))
    assert store.get("a") == entry("a", b"", 1)


@pytest.mark.parametrize("revision", [0, 1, 2**63 - 1, 2**63, 2**64 - 1])
def test_every_revision_comes_back(store: SnapshotStore, revision: int) -> None:
    store.apply([put("a", b"v", revision)], at(revision))
    found = store.get("a")
    assert found is not None
    assert found.revision == revision
    assert store.cursor.revision == revision


@pytest.mark.parametrize("token", [b"", b"\0", b"12345678", b"0123456789"])
def test_versions_that_are_not_revisions_round_trip(store: SnapshotStore, token: bytes) -> None:
    store.apply([put("a", b"v", token=token)], WatchCursor(token))
    found = store.get("a")
    assert found is not None
    assert found.version.raw == token
    assert store.cursor.raw == token


@pytest.mark.parametrize("size", [1, 511, 512, 4000, KEY_BYTES_MAX])
def test_keys_of_any_length_are_kept(store: SnapshotStore, size: int) -> None:
    key = "k" * size
    store.apply([put(key, b"v", 1), put("l", b"w", 2)], at(2))
    assert store.get(key) == entry(key, b"v", 1)
    assert list(contents(store)) == [key, "l"]
    store.apply([delete(key, 3)], at(3))
    assert list(contents(store)) == ["l"]


def test_oversized_key_is_refused_with_its_whole_batch(
    store: SnapshotStore,
) -> None:
    with pytest.raises(ValueError, match="at most 65535 bytes"):
        store.apply([put("a", b"1", 1), put("k" * (KEY_BYTES_MAX + 1), b"v", 2)], at(2))
    assert contents(store) == {}
    assert store.cursor == WatchCursor.NONE
    store.apply([put("a", b"1", 1)], at(1))
    assert store.count() == 1


def test_large_values_come_back(store: SnapshotStore) -> None:
    value = bytes(range(256)) * 8192
    store.apply([put("big", value, 1)], at(1))
    assert store.get("big") == entry("big", value, 1)


def test_origin_note_stays_until_it_is_replaced(store: SnapshotStore) -> None:
    origin = SnapshotMeta("KV_b 2026", ("a.", "b."), seen_evicting=True)
    store.apply([], at(1), meta=origin)
    store.apply([put("a.x", b"1", 2)], at(2))
    assert store.meta == origin
    store.apply([], WatchCursor.NONE, meta=SnapshotMeta("KV_b 2027"))
    assert store.meta == SnapshotMeta("KV_b 2027")
    assert store.cursor == WatchCursor.NONE
    assert store.count() == 1


def test_clear_removes_everything(store: SnapshotStore) -> None:
    store.apply([put(f"k.{n}", b"v", n) for n in range(MANY)], at(MANY), meta=SnapshotMeta("id"))
    store.apply([put("l" * 600, b"v", MANY)], at(MANY))
    store.clear()
    assert contents(store) == {}
    assert store.count() == 0
    assert store.cursor == WatchCursor.NONE
    assert store.meta == SnapshotMeta()
    store.apply([put("a", b"1", 1)], at(1))
    assert list(contents(store)) == ["a"]


def test_sync_changes_nothing_readable(store: SnapshotStore) -> None:
    batch = [put(f"k.{n}", b"v" * 100, n) for n in range(MANY)]
    store.apply(batch, at(MANY))
    store.finish_load()
    assert contents(store) == model(batch)
    assert store.cursor == at(MANY)


def test_closed_store_refuses_calls_and_closes_twice(store: SnapshotStore) -> None:
    store.apply([put("a", b"1", 1)], at(1))
    store.close()
    store.close()
    with pytest.raises(FoldStoreError):
        store.apply([put("a", b"1", 1)], at(1))
    with pytest.raises(FoldStoreError):
        store.get("a")
    with pytest.raises(FoldStoreError):
        list(store.range())
