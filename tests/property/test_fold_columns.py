"""Updates as columns are the same as updates one by one: read, encoded, folded, in any pieces."""

from __future__ import annotations

from array import array
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.bulk.record_batch import Batch
from penstock.fold import MemorySnapshot
from penstock.fold.store import pgss
from penstock.fold.store.log_codec import encode_columns, encode_updates, fold_columns, fold_updates
from penstock.fold.store.sorted_columns import SortedColumns
from penstock.fold.store.value_record import encode_record
from penstock.kv.bucket_records import updates_of
from penstock.kv.kv_types import KvUpdate, Op
from penstock.kv.update_batch import JoinedUpdates, Updates
from support.folds import KINDS, at, contents, model

if TYPE_CHECKING:
    from collections.abc import Sequence

    Row = tuple[bytes, bytes, bytes]

PREFIX = "$KV.b."
HEADERS = {
    b"": Op.PUT,
    b"NATS/1.0\r\nX: y\r\n\r\n": Op.PUT,
    b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n": Op.DELETE,
    b"NATS/1.0\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n": Op.PURGE,
    b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\n\r\n": Op.PURGE,
}
keys = st.sampled_from([b"a", b"a.b", b"ab", "ü".encode(), b"k" * 300])
rows = st.lists(
    st.tuples(keys, st.sampled_from(list(HEADERS)), st.binary(max_size=30)), max_size=12
)
plain = st.lists(st.tuples(keys, st.just(b""), st.binary(max_size=30)), max_size=12)


def batch_of(rows: Sequence[Row], first: int = 1) -> Batch:
    subjects = [PREFIX.encode() + key for key, _, _ in rows]
    seqs = array("q", range(first, first + len(rows)))
    return Batch(
        len(rows),
        0,
        seqs.tobytes(),
        array("q", (seq * 10**9 for seq in seqs)).tobytes(),
        b"".join(subjects),
        offsets(subjects),
        b"".join(header for _, header, _ in rows),
        offsets([header for _, header, _ in rows]),
        b"".join(payload for _, _, payload in rows),
        offsets([payload for _, _, payload in rows]),
    )


def offsets(pieces: Sequence[bytes]) -> bytes:
    return array("i", accumulate(map(len, pieces), initial=0)).tobytes()


def naive(rows: Sequence[Row], first: int = 1) -> list[KvUpdate]:
    found = []
    for seq, (key, header, payload) in enumerate(rows, first):
        reason = "MaxAge" if b"MaxAge" in header else None
        found.append(KvUpdate(HEADERS[header], key.decode(), payload, seq, float(seq), reason))
    return found


@given(rows | plain)
@settings(max_examples=200, deadline=None)
def test_columns_read_as_updates(rows: list[Row]) -> None:
    updates = updates_of(batch_of(rows), len(PREFIX))
    assert isinstance(updates, Updates)
    assert (len(updates), list(updates)) == (len(rows), naive(rows))
    assert updates == naive(rows)


@given(rows | plain)
@settings(max_examples=200, deadline=None)
def test_columns_are_encoded_and_folded_as_updates_are(rows: list[Row]) -> None:
    updates, objects = updates_of(batch_of(rows), len(PREFIX)), naive(rows)
    assert isinstance(updates, Updates)
    columns = updates.batch, updates.skipped, updates.ops
    assert encode_columns(*columns) == encode_updates(objects)
    ours: dict[str, bytes] = {"a": b"\x00old", "z": b"\x00kept"}
    theirs = dict(ours)
    added, removed = (set[str](), set[str]()), (set[str](), set[str]())
    grown = fold_columns(ours, *columns, added[0], removed[0])
    assert grown == fold_updates(theirs, objects, added[1], removed[1])
    assert (ours, added[0], removed[0]) == (theirs, added[1], removed[1])


@given(st.lists(rows | plain, max_size=4))
@settings(max_examples=100, deadline=None)
def test_pieces_of_either_kind_are_one_batch(pieces: list[list[Row]]) -> None:
    first, parts, all_objects = 1, [], []
    for number, part in enumerate(pieces):
        objects = naive(part, first)
        columns = updates_of(batch_of(part, first), len(PREFIX))
        parts.append(objects if number % 2 else columns)
        all_objects += objects
        first += len(part)
    joined = JoinedUpdates(parts)
    assert (len(joined), list(joined)) == (len(all_objects), all_objects)
    assert pgss.encode_batch(joined, at(9)) == pgss.encode_batch(all_objects, at(9))
    store = MemorySnapshot.open()
    store.apply(joined, at(9))
    assert contents(store) == model(all_objects)


@given(st.lists(rows | plain, max_size=4))
@settings(max_examples=200, deadline=None)
def test_sorted_columns_have_the_last_update_of_each_key_in_key_order(
    pieces: list[list[Row]],
) -> None:
    first, parts, last = 1, [], dict[bytes, KvUpdate]()
    for part in pieces:
        parts.append(Updates(batch_of(part, first), len(PREFIX), bytes(map(int, ops_of(part)))))
        last |= {update.key.encode(): update for update in naive(part, first)}
        first += len(part)
    columns = SortedColumns(parts)
    puts = sorted((key, one) for key, one in last.items() if one.op is Op.PUT)
    assert len(columns) == len(last)
    assert list(columns.records()) == [(key, encode_record(one)) for key, one in puts]
    assert list(columns.rows()) == [
        (key, one.revision, one.value, one.created) for key, one in puts
    ]
    assert columns.deletes() == sorted(key for key, one in last.items() if one.op is not Op.PUT)
    if last:
        sizes = (columns.key_bytes_min, columns.key_bytes_max)
        assert sizes == (min(map(len, last)), max(map(len, last)))


@given(st.lists(rows | plain, max_size=4))
@settings(max_examples=20, deadline=None)
def test_every_store_holds_the_same_from_columns_and_from_objects(pieces: list[list[Row]]) -> None:
    first, parts, objects = 1, [], []
    for part in pieces:
        parts.append(updates_of(batch_of(part, first), len(PREFIX)))
        objects += naive(part, first)
        first += len(part)
    for kind in KINDS.values():
        with TemporaryDirectory() as place, kind.open(Path(place) / "fold") as store:
            store.apply(JoinedUpdates(parts), at(9))
            assert contents(store) == model(objects)


def ops_of(part: Sequence[Row]) -> list[Op]:
    return [HEADERS[header] for _, header, _ in part]


def test_key_that_is_no_text_is_left_out_and_holds_nothing_up() -> None:
    rows = [(b"a", b"", b"1"), (b"\xff", b"", b"2"), (b"b", b"", b"3")]
    found = updates_of(batch_of(rows), len(PREFIX))
    assert [(one.key, one.revision) for one in found] == [("a", 1), ("b", 3)]
