"""Digests are noted where the fold is exactly what the bucket was, and compared there."""

from __future__ import annotations

from array import array
from itertools import accumulate
from random import Random
from typing import TYPE_CHECKING

import pytest

from penstock.bulk.record_batch import Batch
from penstock.fold import FoldStoreError, MemorySnapshot, SnapshotMeta
from penstock.fold.artifact.digest import (
    CHECKPOINT_REVISIONS,
    CHECKPOINTS_MAX,
    DigestReport,
    FoldDigest,
    as_hex,
    compare,
    digest_of,
)
from penstock.kv.kv_types import KvEntry, KvUpdate, Op, VersionToken, WatchCursor
from penstock.kv.update_batch import Updates
from support.folds import at, delete, put

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

WHOLE = SnapshotMeta("KV_b 2026", ("",))
PART = SnapshotMeta("KV_b 2026", ("k.",))
CHECKED = CHECKPOINT_REVISIONS


def change(revision: int) -> KvUpdate:
    chance = Random(revision)
    key = f"k.{chance.randrange(50)}"
    return delete(key, revision) if revision % 9 == 0 else put(key, chance.randbytes(8), revision)


def off_the_wire(updates: Sequence[KvUpdate], pending: int) -> Updates:
    """As a watch brings them."""
    subjects = [update.key.encode() for update in updates]
    values = [update.value for update in updates]
    batch = Batch(
        len(updates),
        pending,
        array("q", [update.revision for update in updates]).tobytes(),
        array("q", [0] * len(updates)).tobytes(),
        b"".join(subjects),
        array("i", accumulate(map(len, subjects), initial=0)).tobytes(),
        b"",
        array("i", [0] * (len(updates) + 1)).tobytes(),
        b"".join(values),
        array("i", accumulate(map(len, values), initial=0)).tobytes(),
    )
    return Updates(batch, 0, bytes(update.op for update in updates))


class Node:
    """A copy of a bucket with a digest."""

    def __init__(self, meta: SnapshotMeta = WHOLE) -> None:
        self.store = MemorySnapshot.open()
        self.store.apply([], WatchCursor.NONE, meta=meta)
        self.digest = FoldDigest()
        self.store.attach(self.digest)

    def take(self, revisions: Iterable[int], *, pending: int = 0) -> Node:
        updates = [change(revision) for revision in revisions]
        self.store.apply(off_the_wire(updates, pending), at(updates[-1].revision))
        return self

    def follow(self, start: int, stop: int, step: int) -> Node:
        for first in range(start, stop, step):
            self.take(range(first, min(first + step, stop)), pending=7)
        return self

    @property
    def noted(self) -> dict[int, str]:
        return self.digest.report().checkpoints


def test_copies_that_were_fed_in_other_batches_have_the_same_notes() -> None:
    one, other = Node().take([1]).follow(2, 3_500, 100), Node().take([1]).follow(2, 3_300, 333)
    assert set(one.noted) == {CHECKED, 2 * CHECKED, 3 * CHECKED}
    assert one.noted == other.noted
    assert compare(one.digest.report(), other.digest.report()).agree is True


def test_note_is_digest_of_bucket_at_that_revision() -> None:
    node = Node().take([1]).follow(2, 2_500, 170)
    there = MemorySnapshot.open()
    there.apply([change(revision) for revision in range(1, 2 * CHECKED + 1)], at(2 * CHECKED))
    assert node.noted[2 * CHECKED] == digest_of(there)


def test_copies_that_differ_are_distinguished() -> None:
    one, other = Node().take([1]).follow(2, 1_500, 100), Node().take([1]).follow(2, 900, 100)
    other.store.apply([put("k.odd", b"!", 900)], at(900))
    other.follow(901, 1_500, 100)
    verdict = compare(one.digest.report(), other.digest.report())
    assert (verdict.agree, verdict.revision) == (False, 1_499)


def test_only_so_many_notes_are_kept() -> None:
    node = Node().take([1]).follow(2, (CHECKPOINTS_MAX + 3) * CHECKED, 5_000)
    assert len(node.noted) == CHECKPOINTS_MAX
    assert max(node.noted) == (CHECKPOINTS_MAX + 2) * CHECKED


def test_nothing_is_noted_on_way_to_what_is_there() -> None:
    node = Node()
    node.follow(500, 1_500, 100)  # the bucket has forgotten what was before
    assert node.noted == {}
    assert not node.digest.report().is_exact
    node.take([1_500], pending=0)
    assert node.digest.report().is_exact


def test_message_that_was_dropped_before_it_was_read_stops_notes_until_all_is_read() -> None:
    node = Node().take([1]).follow(2, 990, 100)
    node.take([*range(990, 995), *range(997, 1_200)], pending=7)
    assert node.noted == {}
    node.take([1_200], pending=0).follow(1_201, 2_100, 100)
    assert set(node.noted) == {2 * CHECKED}


def test_part_of_bucket_is_exact_when_nothing_is_left_to_read() -> None:
    node = Node(PART).take([1]).follow(2, 1_500, 100)
    assert node.noted == {}
    assert not node.digest.report().is_exact
    node.store.apply([], at(2_000))  # a bookmark
    report = node.digest.report()
    assert (report.is_exact, report.revision) == (True, 2_000)


@pytest.mark.parametrize(
    "repair",
    [[delete("k.1")], [put("k.1", b"", 5)], [put("k.2", b"", 1_402), put("k.1", b"", 1_401)]],
)
def test_repair_makes_notes_void(repair: list[KvUpdate]) -> None:
    node = Node().take([1]).follow(2, 1_400, 100)
    assert node.noted
    node.store.apply(repair, at(1_500))
    assert node.noted == {}
    assert not node.digest.report().is_exact
    assert node.digest.verify(node.store)


def test_equal_cursors_are_compared_without_notes() -> None:
    one, other = Node().take(range(1, 50)), Node().take(range(1, 50))
    assert compare(one.digest.report(), other.digest.report()).agree is True
    other = Node().take([*range(1, 49), 51])
    other.store.apply([], at(52))
    assert compare(one.digest.report(), other.digest.report()).agree is None


@pytest.mark.parametrize(
    "other",
    [
        DigestReport(scope=("x.",)),
        DigestReport(identity="KV_b 1999", scope=("",)),
        DigestReport(scope=("",), keep="keys-only", revision=1, is_exact=True, digest="1"),
    ],
)
def test_copies_of_something_else_are_not_compared(other: DigestReport) -> None:
    mine = DigestReport(identity="KV_b 2026", scope=("",), revision=1, is_exact=True, digest="0")
    assert compare(mine, other).agree is None


def test_meaning_of_term_is_fixed() -> None:
    with MemorySnapshot.open() as store:
        store.apply([KvUpdate(Op.PUT, "node.a", b"hello", 1), put("b", b"", token=b"01")], at(1))
        assert digest_of(store) == (
            "eb8ab0a8e5a80a13f3cdcf1dd5f519c8d1777313c4a30474103f5028420d458d"
        )


def test_store_that_changes_has_no_digest() -> None:
    class Moving(MemorySnapshot):
        @property
        def cursor(self) -> WatchCursor:
            self.asked = getattr(self, "asked", 0) + 1
            return at(self.asked)

    with pytest.raises(FoldStoreError, match="changed"):
        digest_of(Moving.open())


def test_digest_wraps_around() -> None:
    assert as_hex(-1) == "ff" * 32
    assert as_hex(1 << 256) == "00" * 32


def test_entry_is_hashed_with_its_version() -> None:
    from penstock.fold.artifact.digest import Terms

    terms = Terms()
    one = terms.of_entry(KvEntry("k", b"v", VersionToken.of(1)))
    assert one != terms.of_entry(KvEntry("k", b"v", VersionToken.of(2)))
    assert terms.of("a", b"", b"1") != terms.of("a", b"1", b"")
