"""The append log's bytes: golden vectors, and what any cut and any flipped bit does to a file."""

from __future__ import annotations

from zlib import crc32

import pytest

from penstock.fold import FoldCorruptedError, FoldFormatError, FoldStoreError
from penstock.fold.store import log_scan, pgss
from penstock.fold.store.log_codec import encode_entries, encode_updates
from penstock.kv.kv_types import KvUpdate, WatchCursor
from support.folds import at, delete, purge, put

PUT_A = "f28d2a1c 01 0600 6e6f64652e61 05000000 68656c6c6f 08 0000000000000001"
PUT_B = "7fbe5fb9 01 0600 6e6f64652e62 00000000 08 0000000000000002"
CURSOR_2 = "41106b5d 03 08 0000000000000002"
DELETE_A = "c1733e98 02 0600 6e6f64652e61 08 0000000000000004"
DELETE_GONE = "c7c9dcc1 02 0400 676f6e65 00"
CURSOR_4 = "74b508b4 03 08 0000000000000004"
PUT_K = "8bb1253a 01 0100 6b 01000000 76 0a 0102030405060708090a"
HEADER = bytes.fromhex("504753530200")
COMPACTED = bytes.fromhex(
    "5047535302007fbe5fb90106006e6f64652e620000000008000000000000000274b508b403080000000000000004"
)
TEN = bytes(range(1, 11))

VECTORS: list[tuple[str, KvUpdate]] = [
    (PUT_A, put("node.a", b"hello", 1)),
    (PUT_B, put("node.b", b"", 2)),
    (DELETE_A, delete("node.a", 4)),
    (DELETE_A, purge("node.a", 4)),
    (DELETE_GONE, delete("gone")),
    (PUT_K, put("k", b"v", token=TEN)),
]
BATCHES = [
    ([put("node.a", b"hello", 1), put("node.b", b"", 2)], 2),
    ([delete("node.a", 4)], 4),
    ([put("k", b"v", token=TEN), put("ü.日本", b"\x03" * 20, 5)], 5),
    ([], 6),
    ([delete("k"), put("node.a", b"back", 7), put("node.a", b"again", 8)], 8),
]


def raw(*parts: str) -> bytes:
    return HEADER + b"".join(map(bytes.fromhex, parts))


def written() -> bytes:
    return HEADER + b"".join(pgss.encode_batch(batch, at(last)) for batch, last in BATCHES)


def compacted(said: pgss.LogReplay) -> bytes:
    records = encode_entries(said.entries, sorted(said.entries))
    return b"".join(pgss.compacted([records], said.cursor))


def states() -> list[tuple[dict[str, bytes], WatchCursor]]:
    """What the file says after each of its records."""
    entries: dict[str, bytes] = {}
    cursor = WatchCursor.NONE
    found = [(dict(entries), cursor)]
    for batch, last in BATCHES:
        for update in batch:
            entries.pop(update.key, None)
            if update.op == 1:
                version = update.version.raw
                entries[update.key] = bytes([len(version)]) + version + update.value
            found.append((dict(entries), cursor))
        cursor = at(last)
        found.append((dict(entries), cursor))
    return found


# -- golden


@pytest.mark.parametrize(("vector", "update"), VECTORS)
def test_record_has_exactly_these_bytes(vector: str, update: KvUpdate) -> None:
    assert encode_updates([update]) == bytes.fromhex(vector)


def test_header_and_cursors_have_exactly_these_bytes() -> None:
    assert pgss.HEADER == HEADER
    assert pgss.cursor_record(at(2)) == bytes.fromhex(CURSOR_2)
    assert pgss.cursor_record(at(4)) == bytes.fromhex(CURSOR_4)


def test_log_that_is_rewritten_has_exactly_these_bytes() -> None:
    from blake3 import blake3

    said = pgss.replay(raw(PUT_A, PUT_B, CURSOR_2, DELETE_A, CURSOR_4))
    assert said.cursor == at(4)
    assert not said.is_compact
    assert compacted(said) == COMPACTED
    assert blake3(COMPACTED).hexdigest() == (
        "9b58ad2659a27c56c856fcefe22bb63cb8fa17d4e15773edb1cd574d06015cf0"
    )
    assert pgss.replay(COMPACTED) == said._replace(is_compact=True)
    assert said.live_bytes == len(COMPACTED) - len(HEADER) - len(bytes.fromhex(CURSOR_4))


# -- damage


def test_any_cut_leaves_state_after_some_record() -> None:
    data, possible = written(), states()
    reached = []
    for size in range(len(HEADER), len(data) + 1):
        said = pgss.replay(data[:size])
        assert (said.entries, said.cursor) in possible
        reached.append(possible.index((said.entries, said.cursor)))
    assert reached == sorted(reached)
    assert reached[-1] == len(possible) - 1


def test_any_flipped_bit_is_reported_or_leaves_state_after_some_record() -> None:
    data, possible = written(), states()
    told = kept = 0
    for place in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        try:
            said = pgss.replay(bytes(flipped))
        except FoldStoreError:
            told += 1
            continue
        assert (said.entries, said.cursor) in possible, f"bit {place}"
        assert not said.is_compact
        kept += 1
    assert told > kept > 0


@pytest.mark.parametrize("junk", [b"\0", b"\0" * 5, b"\0" * 5000])
def test_space_that_was_never_written_is_torn_tail(junk: bytes) -> None:
    said = pgss.replay(written() + junk)
    assert (said.entries, said.cursor) == states()[-1]
    assert not said.is_compact


def test_zeros_before_something_else_are_no_tail() -> None:
    with pytest.raises(FoldFormatError, match="zeros before something else"):
        pgss.replay(written() + b"\0" * 20 + bytes.fromhex(CURSOR_4))


def test_checksum_that_fails_before_another_record_is_damage() -> None:
    data = bytearray(raw(PUT_A, CURSOR_2))
    data[24] ^= 1
    with pytest.raises(FoldCorruptedError, match="byte 6"):
        pgss.replay(bytes(data))


def test_checksum_that_fails_at_the_end_is_torn_tail() -> None:
    data = bytearray(raw(PUT_A, CURSOR_2))
    data[-1] ^= 1
    said = pgss.replay(bytes(data))
    assert list(said.entries) == ["node.a"]
    assert said.cursor == WatchCursor.NONE


def test_value_length_beyond_all_values_is_damage_and_no_tail() -> None:
    data = bytearray(raw(PUT_A, CURSOR_2))
    data[22] = 0xFF  # the highest byte of the value's length
    with pytest.raises(FoldCorruptedError):
        pgss.replay(bytes(data))


def test_damaged_length_that_hides_records_is_damage() -> None:
    """The record looks torn, but records follow it: however few bytes they are."""
    data = bytearray(raw(PUT_A, CURSOR_2))
    data[21] = 0x20  # the value of node.a now seems to be 2 MiB long
    with pytest.raises(FoldCorruptedError, match="byte 6 is damaged: a valid record follows"):
        pgss.replay(bytes(data))
    torn = pgss.replay(bytes(data[: -len(bytes.fromhex(CURSOR_2))]))
    assert (torn.entries, torn.torn_bytes) == ({}, len(bytes.fromhex(PUT_A)))


def test_no_single_bit_flip_hides_record_that_follows() -> None:
    """A flip before the last record raises an error, or leaves everything as it was."""
    batches = [pgss.encode_batch([put(f"k.{i}", b"v" * (i % 9), i)], at(i)) for i in range(1, 30)]
    data = HEADER + b"".join(batches)
    whole = pgss.replay(data)
    last = len(data) - len(pgss.cursor_record(at(29)))
    for place in range(8 * len(HEADER), 8 * last):
        flipped = bytearray(data)
        flipped[place // 8] ^= 1 << place % 8
        with pytest.raises(FoldStoreError):
            pgss.replay(bytes(flipped))
    assert len(whole.entries) == 29


def test_tail_made_to_look_like_records_has_bound() -> None:
    """Each byte begins a possible record that only a checksum can refuse."""
    torn_put = bytes.fromhex("00000000 01 0100 6b 00001000")
    tail = torn_put + b"\2" * 200_000  # less than the MiB it says
    with pytest.raises(FoldCorruptedError, match="cannot be told from records"):
        pgss.replay(HEADER + tail)
    assert log_scan.find_record(tail[:50_000], 0, 1 << 40) == log_scan.NO_RECORD


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PGSX\2\0", "not an append log"),
        (b"PGSS\1\0", "version 1"),
        (b"PGSS\3\0", "version 3"),
        (b"PGSS\2\1", "version 258"),
        (raw("00000000 09 0000"), "no known type"),
        (raw("00000000 03 0b") + bytes(20), "a cursor of more"),
        (raw("00000000 02 0100 6b 0b") + bytes(20), "a version of more"),
    ],
)
def test_impossible_bytes_are_refused(data: bytes, reason: str) -> None:
    with pytest.raises(FoldFormatError, match=reason):
        pgss.replay(data)


def test_key_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(FoldFormatError, match="UTF-8"):
        pgss.replay(raw("a6f4cf0e 01 0200 fffe 01000000 76 00"))


def test_value_no_reader_would_take_is_not_written() -> None:
    with pytest.raises(ValueError, match="at most 16777216 bytes"):
        encode_updates([put("k", bytes((1 << 24) + 1), 1)])


# -- cursors with a memo


def memo_record(body: bytes) -> bytes:
    whole = bytes([3, len(body)]) + body
    return crc32(whole).to_bytes(4, "little") + whole


@pytest.mark.parametrize("timed", [b"", (1234).to_bytes(8, "little")])
def test_cursor_with_memo_is_read(timed: bytes) -> None:
    flags = 1 | (2 if timed else 0)
    body = at(7).raw.ljust(10, b"\0") + bytes([8, flags]) + timed
    said = pgss.replay(HEADER + memo_record(body))
    assert said.cursor == at(7)
    assert said.evicting


def test_memo_that_was_read_is_written_again() -> None:
    data = HEADER + pgss.cursor_record(at(7), evicting=True)
    said = pgss.replay(data)
    assert (said.cursor, said.evicting, said.is_compact) == (at(7), True, True)
    assert data[len(HEADER) + 5] == 12


@pytest.mark.parametrize("tail", [bytes([11, 0]), bytes([8, 2]), bytes([8, 0]) + bytes(8)])
def test_memo_that_contradicts_itself_is_refused(tail: bytes) -> None:
    with pytest.raises(FoldFormatError, match="memo"):
        pgss.replay(HEADER + memo_record(at(7).raw.ljust(10, b"\0") + tail))


# -- rewriting


@pytest.mark.parametrize(
    ("parts", "is_compact"),
    [
        ((), True),
        ((PUT_A,), True),
        ((PUT_A, PUT_B, CURSOR_2), True),
        ((CURSOR_2,), True),
        ((PUT_A, PUT_A), False),
        ((PUT_A, DELETE_GONE), False),
        ((CURSOR_2, CURSOR_4), False),
        ((PUT_A, DELETE_A), False),
        (("f28d2a1c 01",), False),
    ],
)
def test_log_is_rewritten_when_anything_in_it_is_redundant(
    parts: tuple[str, ...], is_compact: bool
) -> None:
    assert pgss.replay(raw(*parts)).is_compact is is_compact
