"""Ranges come in order of bytes, a page at a time, and readers may work beside the writer."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.fold.store import contract
from support.folds import at, contents, delete, model, put

if TYPE_CHECKING:
    from penstock.fold import SnapshotStore
    from penstock.kv.kv_types import KvEntry

MANY = 2_500
ODD = ["", "a", "a.", "a.b", "a.b.c", "a/", "ab", "b", "ü", "üx", "日本", "\U0001f600", "~"]


def filled(store: SnapshotStore, keys: list[str]) -> list[str]:
    """Apply the keys in another order than theirs; answer them in theirs."""
    shuffled = sorted(keys, key=lambda key: key[::-1])
    store.apply([put(key, key.encode(), 1) for key in shuffled], at(1))
    return sorted(keys, key=str.encode)


def test_range_is_ordered_by_key_bytes(store: SnapshotStore) -> None:
    expected = filled(store, ODD)
    assert [one.key for one in store.range()] == expected
    assert all(one.value == one.key.encode() for one in store.range())


@pytest.mark.parametrize("prefix", [*ODD, "x", "a.b.c.d"])
def test_prefix_selects_what_begins_with_it(store: SnapshotStore, prefix: str) -> None:
    expected = [key for key in filled(store, ODD) if key.startswith(prefix)]
    assert [one.key for one in store.range(prefix)] == expected
    assert store.count(prefix) == len(expected)


@pytest.mark.parametrize("after", ["", "a", "a.b", "a.c", "b", "\U0001f600", "\U0010ffff"])
@pytest.mark.parametrize("prefix", ["", "a", "a."])
def test_range_begins_above_key(store: SnapshotStore, prefix: str, after: str) -> None:
    keys = [key for key in filled(store, ODD) if key.startswith(prefix) and key > after]
    assert [one.key for one in store.range(prefix, after=after)] == keys
    assert [one.key for one in store.range(prefix, after=after, limit=2)] == keys[:2]


@pytest.mark.parametrize("limit", [0, 1, 999, 1000, 1001, MANY, MANY + 1])
def test_range_ends_at_its_limit(store: SnapshotStore, limit: int) -> None:
    keys = filled(store, [f"k.{n:05}" for n in range(MANY)])
    assert [one.key for one in store.range(limit=limit)] == keys[:limit]


def test_long_keys_are_in_order(store: SnapshotStore) -> None:
    keys = ["m" * size for size in (1, 400, 511, 512, 700)] + ["a", "n", "m" * 512 + "n"]
    assert [one.key for one in store.range()] == []
    expected = filled(store, keys)
    assert [one.key for one in store.range()] == expected
    assert store.count("mm") == 5
    assert [one.key for one in store.range("m", after="m" * 511)] == expected[4:7]
    assert [one.key for one in store.range(limit=5)] == expected[:5]


def test_page_ends_early_when_values_are_large(store: SnapshotStore) -> None:
    value = b"v" * (contract.PAGE_BYTES_MAX // 3 + 1)
    batch = [put(f"k{n}", value, n) for n in range(5)]
    store.apply(batch, at(5))
    assert 1 <= len(store.page()) < 5
    assert contents(store) == model(batch)


def test_range_does_not_read_ahead_of_its_page(store: SnapshotStore) -> None:
    filled(store, [f"k.{n:05}" for n in range(MANY)])
    walk = store.range()
    assert next(walk).key == "k.00000"
    store.apply([delete("k.02000", 2), put("k.02000x", b"new", 3)], at(3))
    rest = [one.key for one in walk]
    assert "k.02000" not in rest
    assert "k.02000x" in rest


def test_range_sees_each_key_once_while_keys_are_deleted(
    store: SnapshotStore,
) -> None:
    keys = filled(store, [f"k.{n:05}" for n in range(MANY)])
    seen = []
    for one in store.range():
        seen.append(one.key)
        if len(seen) % 100 == 0:
            store.apply([delete(key) for key in seen[-100:]], at(1))
    assert seen == keys
    assert store.count() == 0


def test_get_many_returns_results_in_request_order(store: SnapshotStore) -> None:
    filled(store, [f"k.{n}" for n in range(MANY)])
    asked = ["k.7", "none", "k.7", "x" * 600, *(f"k.{n}" for n in range(0, MANY, 2))]
    answers = store.get_many(asked)
    assert [None if one is None else one.key for one in answers] == [
        key if key.startswith("k.") else None for key in asked
    ]
    assert store.get_many([]) == []


def test_sorted_order_follows_later_changes(store: SnapshotStore) -> None:
    updates = [put(f"k.{n:03}", b"1", n) for n in range(300)]
    store.apply(updates, at(300))
    assert store.count("k.") == 300
    for change in (
        [delete("k.007"), put("k.0075", b"2", 301), delete("none"), put("k.010", b"3", 302)],
        [put("k.007", b"back", 303), delete("k.0075"), put("k.0075", b"again", 304)],
        [put(f"j.{n}", b"4", n) for n in range(200)] + [delete(f"k.{n:03}") for n in range(150)],
    ):
        updates += change
        store.apply(change, at(400))
        assert [one.key for one in store.range()] == sorted(model(updates))
        assert contents(store) == model(updates)


def test_reader_sees_changes_before_and_after_its_creation(
    store: SnapshotStore,
) -> None:
    store.apply([put("a", b"1", 1)], at(1))
    with store.reader() as reader:
        assert reader.cursor == at(1)
        store.apply([put("b", b"2", 2)], at(2))
        assert contents(reader) == contents(store)
        assert reader.cursor == at(2)
        assert reader.count("b") == 1
        assert reader.get_many(["b", "c"]) == [store.get("b"), None]
    assert store.count() == 2


def older(one: KvEntry | None, floor: int) -> bool:
    return one is None or one.revision is None or one.revision < floor


def test_readers_in_other_threads_never_see_cursor_ahead_of_its_data(
    store: SnapshotStore,
) -> None:
    """Each batch writes its revision to every key: what is read must not be older than the cursor
    that was read before it."""
    keys = [f"k.{n}" for n in range(20)]
    store.apply([put(key, b"0", 0) for key in keys], at(0))
    behind: list[str] = []
    seen: set[int] = set()
    done = threading.Event()

    def watch() -> None:
        with store.reader() as reader:
            while not done.is_set():
                floor = reader.cursor.rank
                seen.add(floor)
                found = [*reader.page(), *reader.get_many(keys), reader.get("k.3")]
                behind.extend(f"{one} below {floor}" for one in found if older(one, floor))

    readers = [threading.Thread(target=watch) for _ in range(2)]
    for one in readers:
        one.start()
    for revision in range(1, 61):
        store.apply([put(key, b"%d" % revision, revision) for key in keys], at(revision))
    done.set()
    for one in readers:
        one.join()
    assert behind == []
    assert seen
