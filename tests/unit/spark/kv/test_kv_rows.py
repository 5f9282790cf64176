"""Records of a bucket's stream as rows of keys, as the ordinary reading of a bucket tells them."""

from __future__ import annotations

import struct

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.record_batch import Batch
from penstock.kv.bucket_records import updates_of
from penstock.spark.kv.kv_rows import OPERATIONS, KeyRows, bucket_schema, newest_of

HEADERS = [
    b"",
    b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n",
    b"NATS/1.0\r\nNats-Msg-Id: KV-Operation\r\nKV-Operation: PURGE\r\nNats-Rollup: sub\r\n\r\n",
    b"NATS/1.0\r\nNats-Marker-Reason: MaxAge\r\nNats-TTL: 3s\r\n\r\n",
    b"NATS/1.0\r\nOther: KV-Operation: DEL\r\n\r\n",
    b"NATS/1.0\r\nKV-Operation: SOMETHING\r\n\r\n",
]
Record = tuple[bytes, bytes, bytes]


def column(values: list[bytes]) -> tuple[bytes, bytes]:
    offsets = [0]
    for value in values:
        offsets.append(offsets[-1] + len(value))
    return b"".join(values), struct.pack(f"={len(offsets)}i", *offsets)


def batch_of(records: list[Record], first: int = 1) -> Batch:
    count = len(records)
    seqs = struct.pack(f"={count}q", *range(first, first + count))
    times = struct.pack(f"={count}q", *[1_700_000_000_123_456_789] * count)
    subjects, headers, payloads = (column([record[at] for record in records]) for at in range(3))
    return Batch(count, 0, seqs, times, *subjects, *headers, *payloads)


keys = st.sampled_from([b"a", b"a.b", b"abc", b"z", b"\xc3\xa4"])
records = st.tuples(keys.map(b"$KV.b.".__add__), st.sampled_from(HEADERS), st.binary(max_size=3))


@given(st.lists(records, max_size=12))
def test_any_records_are_updates_that_watch_would_tell(given_records: list[Record]) -> None:
    batch = batch_of(given_records)
    found = KeyRows("b", ("",), bucket_schema()).make(batch).to_pylist()
    told = updates_of(batch, len("$KV.b."))
    assert [(row["key"], row["op"], row["revision"]) for row in found] == [
        (one.key, OPERATIONS[one.op], one.revision) for one in told
    ]
    for row, record in zip(found, given_records, strict=True):
        assert row["value"] == (record[2] if row["op"] == "put" else None)


@given(st.lists(records, max_size=12), st.sampled_from([("a",), ("a.",), ("ab", "z"), ("",)]))
def test_prefixes_that_end_within_token_leave_their_keys_alone(
    given_records: list[Record], prefixes: tuple[str, ...]
) -> None:
    rows = KeyRows("b", prefixes, bucket_schema()).make(batch_of(given_records))
    every = [one.key for one in updates_of(batch_of(given_records), len("$KV.b."))]
    if all(prefix.endswith(".") or not prefix for prefix in prefixes):
        return  # the server has seen to these
    assert rows["key"].to_pylist() == [key for key in every if key.startswith(prefixes)]


def test_key_that_is_no_text_is_row_anyway() -> None:
    rows = KeyRows("b", ("",), bucket_schema()).make(batch_of([(b"$KV.b.\xff", b"", b"x")]))
    assert rows["key"].to_pylist() == ["\N{REPLACEMENT CHARACTER}"]


@given(st.lists(st.sampled_from("abc"), max_size=10))
def test_newest_of_table_is_the_last_of_each_key(names: list[str]) -> None:
    table = pa.table(
        {"key": pa.array(names, pa.string()), "revision": pa.array(range(len(names)), pa.int64())}
    )
    newest = newest_of(table).to_pydict()
    found = dict(zip(newest["key"], newest["revision"], strict=True))
    assert found == {name: at for at, name in enumerate(names)}
    assert len(found) == len(newest["key"])
