"""Entries keep their meaning as bytes: golden examples, subjects that are not UTF-8, bad bytes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.api.stream_config import StreamConfig
from penstock.jetstream.streams.entries import (
    BatchEntry,
    Entry,
    Expire,
    FastMark,
    Publish,
    Purge,
    Remove,
    Skip,
    Special,
    Trim,
    Update,
)
from penstock.jetstream.streams.entry_codec import InvalidEntry, decode_entry, encode_entry

GOLDEN = Path(__file__).parents[3] / "golden" / "entries-1.json"
NOT_UTF8 = b"s.\xff\xfe".decode(errors="surrogateescape")
TS_NS = 1_767_225_600_000_000_001
FULL = Special(
    ttl_ns=5,
    msg_id=b"id",
    rollup="sub",
    purged=NOT_UTF8,
    skip=True,
    value="12",
    fast=FastMark("b", 2, commit=True, gap_ok=False, flow=10),
    origin_seq=9,
)
EXAMPLES: dict[str, Entry] = {
    "publish": Publish(TS_NS, "s.a", b"", b"payload"),
    "publish with everything": Publish(TS_NS, NOT_UTF8, b"NATS/1.0\r\n\r\n", b"\x00", "r", FULL),
    "batch": BatchEntry(TS_NS, "b", (Publish(TS_NS, "s.a", b"", b"1"),), 3, "r", b"packed"),
    "purge": Purge(TS_NS, NOT_UTF8, 7, 1, 8, 2),
    "remove": Remove(TS_NS, (1, 5, 2**63 - 1), erase=True),
    "expire": Expire(TS_NS),
    "trim": Trim(TS_NS),
    "skip": Skip(TS_NS, (3, 9)),
    "update": Update(TS_NS, StreamConfig(name="S", subjects=("s.>",), max_age=5)),
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_golden_bytes_decode_to_their_entry(kind: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert decode_entry(bytes.fromhex(golden[kind])) == EXAMPLES[kind]


@pytest.mark.parametrize("kind", sorted(EXAMPLES.keys() - {"update"}))
def test_encoding_gives_golden_bytes(kind: str) -> None:
    golden = json.loads(GOLDEN.read_text())
    assert encode_entry(EXAMPLES[kind]).hex() == golden[kind]


def test_update_with_fields_added_later_keeps_its_meaning() -> None:
    # A configuration gets new fields with defaults, so its bytes grow.
    assert decode_entry(encode_entry(EXAMPLES["update"])) == EXAMPLES["update"]


def test_every_kind_of_entry_has_golden_example() -> None:
    assert {type(entry) for entry in EXAMPLES.values()} == set(Entry.__args__)


def test_subjects_and_replies_need_not_be_utf8() -> None:
    entry = Publish(TS_NS, NOT_UTF8, b"", b"", NOT_UTF8)
    assert b"s.\xff\xfe" in encode_entry(entry)
    assert decode_entry(encode_entry(entry)) == entry


def test_fields_of_later_release_are_ignored() -> None:
    # An array of three instead of two elements: tag, time, and one field more.
    longer = b"\x93" + encode_entry(Expire(TS_NS))[1:] + b"\x01"
    assert decode_entry(longer) == Expire(TS_NS)


@pytest.mark.parametrize("bad", [b"", b"\xff", b"\x92\xa3new\x01", b"\x92\xa3age\xa1x"])
def test_bytes_that_are_no_entry_are_rejected(bad: bytes) -> None:
    with pytest.raises(InvalidEntry):
        decode_entry(bad)


def test_every_truncation_of_entry_is_rejected() -> None:
    whole = encode_entry(EXAMPLES["publish with everything"])
    for size in range(len(whole)):
        with pytest.raises(InvalidEntry):
            decode_entry(whole[:size])
