"""The compiled reader and writer of the append log agree with the naive model, on any bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from models import pgss as naive
from penstock.fold import FoldStoreError
from penstock.fold.store import pgss
from penstock.fold.store.log_codec import encode_entries, encode_updates, fold_updates
from support.folds import model
from support.updates import batches, cursors

if TYPE_CHECKING:
    from penstock.kv.kv_types import KvUpdate, WatchCursor

Written = list[tuple["list[KvUpdate]", "WatchCursor"]]
written = st.lists(st.tuples(batches, cursors), max_size=5)
bodies = st.binary(max_size=40)


def log_of(content: Written) -> bytes:
    return pgss.HEADER + b"".join(pgss.encode_batch(batch, cursor) for batch, cursor in content)


def check(data: bytes) -> None:
    """Both say the same of these bytes."""
    try:
        expected = naive.replay(data)
    except naive.Refused:
        expected = None
    try:
        said = pgss.replay(data)
    except FoldStoreError:
        said = None
    if expected is None or said is None:
        assert said is expected
        return
    assert (said.entries, said.cursor.raw) == (expected.entries, expected.cursor)
    assert (said.evicting, said.is_compact) == (expected.evicting, expected.is_compact)
    assert said.live_bytes == len(encode_entries(said.entries, list(said.entries)))


@given(batches)
@settings(max_examples=100, deadline=None)
def test_updates_are_encoded_as_model_does(batch: list[KvUpdate]) -> None:
    assert encode_updates(batch) == b"".join(map(naive.encode, batch))


@given(written, st.data())
@settings(max_examples=200, deadline=None)
def test_log_is_read_as_model_does_wherever_it_ends(content: Written, data: st.DataObject) -> None:
    log = log_of(content)
    check(log)
    check(log[: data.draw(st.integers(0, len(log)))])


@given(written, st.data())
@settings(max_examples=300, deadline=None)
def test_changed_log_is_read_as_model_does(content: Written, data: st.DataObject) -> None:
    log = bytearray(log_of(content))
    for _ in range(data.draw(st.integers(1, 3))):
        log[data.draw(st.integers(0, len(log) - 1))] = data.draw(st.integers(0, 255))
    check(bytes(log))
    check(bytes(log) + data.draw(bodies))


@given(st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 3, 4]), bodies), max_size=6))
@settings(max_examples=300, deadline=None)
def test_records_of_any_body_are_read_as_model_does(records: list[tuple[int, bytes]]) -> None:
    """With right checksums, so that what lies behind them is looked at."""
    log = pgss.HEADER
    for kind, rest in records:
        body = bytes([kind]) + rest
        log += naive.crc32(body).to_bytes(4, "little") + body
    check(log)


@given(written)
@settings(max_examples=100, deadline=None)
def test_folding_into_map_is_folding_one_by_one(content: Written) -> None:
    records: dict[str, bytes] = {}
    size, all_updates = 0, []
    for batch, _ in content:
        added: set[str] = set()
        removed: set[str] = set()
        before = set(records)
        size += fold_updates(records, batch, added, removed)
        all_updates += batch
        expected = model(all_updates)
        assert records == {
            key: bytes([len(one.version.raw)]) + one.version.raw + one.value
            for key, one in expected.items()
        }
        assert set(records) - before <= added
        assert before - set(records) <= removed
        assert size == len(encode_entries(records, list(records)))


@given(written)
@settings(max_examples=50, deadline=None)
def test_updates_read_back_fold_to_state_of_log(content: Written) -> None:
    log = log_of(content)
    found = [update for batch, _ in pgss.read_updates(log, 3) for update in batch]
    said = pgss.replay(log)
    records: dict[str, bytes] = {}
    fold_updates(records, found, set(), set())
    assert records == said.entries
