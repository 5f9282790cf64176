"""Rows become changes of keys, in an order that a lost connection cannot turn around."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.publish_frames import encode
from penstock.spark.kv.kv_changes import ChangeLayout
from penstock.spark.kv.kv_options import KvReadOptions, KvWriteOptions, check_write
from penstock.spark.options import OptionError, parse
from penstock.spark.write.sink_ids import BadRow

BASE = {"url": "nats://127.0.0.1:4222", "bucket": "b"}
PLAIN = ChangeLayout(bucket="b", has_op=False)


def batch(**columns: Any) -> pa.RecordBatch:
    return pa.record_batch(columns)


def said(layout: ChangeLayout, **columns: Any) -> list[bytes]:
    """Header lines of each row but its id."""
    rows = layout.changes(batch(**columns)).rows()
    frames = encode(rows.subjects, rows.payloads, ids=rows.ids, lines=rows.lines)
    blocks = (frames.frame(at).split(b"\r\n\r\n")[0].split(b"\r\n")[2:] for at in range(rows.count))
    return [
        b"; ".join(line for line in lines if not line.startswith(b"Nats-Msg-Id"))
        for lines in blocks
    ]


def test_operation_is_spelt_as_clients_of_buckets_do() -> None:
    layout = ChangeLayout(bucket="b", has_op=True)
    found = said(
        layout, key=["a", "b", "c", "d"], value=[b"1"] * 4, op=["put", "DELETE", "purge", None]
    )
    assert found == [b"", b"KV-Operation: DEL", b"KV-Operation: PURGE; Nats-Rollup: sub", b""]


def test_delete_has_no_value_whatever_row_has() -> None:
    layout = ChangeLayout(bucket="b", has_op=True)
    changes = layout.changes(batch(key=["a", "b"], value=[b"1", None], op=["delete", "delete"]))
    assert changes.payloads.to_pylist() == [b"", b""]


def test_revision_and_time_to_live_are_conditions_of_their_row() -> None:
    layout = ChangeLayout(bucket="b", has_op=True, revision="rev", ttl="ttl", ttl_ms=2000)
    found = said(
        layout,
        key=["a", "b", "c"],
        value=[b"1"] * 3,
        op=["put", "put", "delete"],
        rev=pa.array([0, None, 7], pa.int64()),
        ttl=pa.array([5000, None, None], pa.int64()),
    )
    assert found == [
        b"Nats-Expected-Last-Subject-Sequence: 0; Nats-TTL: 5000ms",
        b"Nats-TTL: 2000ms",
        b"KV-Operation: DEL; Nats-Expected-Last-Subject-Sequence: 7",
    ]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_waves_hold_every_row_once_and_key_once_each_in_its_order(keys: list[str]) -> None:
    changes = PLAIN.changes(batch(key=keys, value=[f"{at}".encode() for at in range(len(keys))]))
    waves = [(wave.keys.to_pylist(), wave.payloads.to_pylist()) for wave in changes.waves()]
    assert all(len(set(names)) == len(names) for names, _ in waves)
    for key in set(keys):
        written = [
            int(value)
            for names, values in waves
            for name, value in zip(names, values, strict=True)
            if name == key
        ]
        assert written == [at for at, name in enumerate(keys) if name == key]


@given(st.lists(st.sampled_from("abcd"), min_size=1, max_size=12))
def test_latest_of_each_key_is_its_last_row(keys: list[str]) -> None:
    changes = PLAIN.changes(batch(key=keys, value=[f"{at}".encode() for at in range(len(keys))]))
    latest = changes.latest()
    found = dict(zip(latest.keys.to_pylist(), latest.payloads.to_pylist(), strict=True))
    assert found == {key: f"{at}".encode() for at, key in enumerate(keys)}
    assert len(latest) == len(found)


def test_change_that_depends_on_revision_has_the_same_id_in_every_attempt() -> None:
    layout = ChangeLayout(bucket="b", has_op=False, revision="rev")
    rows = batch(
        key=["a", "a", "b"], value=[b"1", b"2", b"1"], rev=pa.array([4, 4, None], pa.int64())
    )
    one, two = (layout.changes(rows).ids.to_pylist() for _ in range(2))
    assert one[:2] == two[:2]
    assert len({*one, *two}) == 4


def test_other_changes_are_named_by_attempt() -> None:
    rows = batch(key=["a", "b"], value=[b"1", b"1"])
    ids = [one for _ in range(2) for one in PLAIN.changes(rows).ids.to_pylist()]
    assert len(set(ids)) == 4


@pytest.mark.parametrize(
    ("layout", "columns", "told"),
    [
        (PLAIN, {"key": ["a b"], "value": [b""]}, "'a b' is no key"),
        (PLAIN, {"key": ["a", "b.*"], "value": [b"", b""]}, "is no key"),
        (PLAIN, {"key": [None], "value": [b""]}, "is no key"),
        (PLAIN, {"key": ["a\n"], "value": [b""]}, "is no key"),
        (PLAIN, {"key": ["a"], "value": [None]}, "a put without a value"),
        (
            ChangeLayout(bucket="b", has_op=True),
            {"key": ["a"], "value": [b""], "op": ["add"]},
            "'add'",
        ),
        (
            ChangeLayout(bucket="b", has_op=False, revision="r"),
            {"key": ["a"], "value": [b""], "r": [-1]},
            "revision",
        ),
        (
            ChangeLayout(bucket="b", has_op=False, ttl="t"),
            {"key": ["a"], "value": [b""], "t": [5]},
            "1000 ms",
        ),
    ],
)
def test_row_that_is_no_change_is_refused(
    layout: ChangeLayout, columns: dict[str, Any], told: str
) -> None:
    columns = {
        name: pa.array(values, pa.string()) if values == [None] else values
        for name, values in columns.items()
    }
    with pytest.raises(BadRow, match=told):
        layout.changes(batch(**columns))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"bucket": "a.b"}, "bucket"),
        ({"onConflict": "report", "revisionColumn": "r"}, "conflictSubject"),
        ({"conflictSubject": "x", "revisionColumn": "r"}, "onConflict report"),
        ({"onConflict": "skip"}, "revisionColumn"),
        ({"ttlMs": "10"}, "ttlMs"),
        ({"revisionColumn": "r", "latestPerKey": "true"}, "latestPerKey"),
        ({"onConflict": "ignore"}, "onConflict"),
        ({"buckett": "x"}, "did you mean bucket"),
    ],
)
def test_wrong_option_of_writing_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        check_write(parse(KvWriteOptions, {**BASE, **options}))


@pytest.mark.parametrize(
    ("prefixes", "filters"),
    [
        ("", "$KV.b.>"),
        ("users.", "$KV.b.users.>"),
        ("users.a,users.b", "$KV.b.users.>"),
        ("x.,y.z", "$KV.b.x.>,$KV.b.y.>"),
        ("x.,y", "$KV.b.>"),
    ],
)
def test_prefixes_become_subjects_of_whole_tokens(prefixes: str, filters: str) -> None:
    options = parse(KvReadOptions, {**BASE, "keyPrefixes": prefixes}).stream_options()
    assert (options.stream, options.subjects) == ("KV_b", filters)


@pytest.mark.parametrize("name", ["stream", "subjects"])
def test_bucket_is_not_named_as_stream_is(name: str) -> None:
    with pytest.raises(OptionError, match="keyPrefixes"):
        parse(KvReadOptions, {**BASE, name: "x"}).stream_options()
