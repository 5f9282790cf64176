"""Columns hold what a scan of the records, or a reader of the archive, finds one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.jetstream.archive.stream_archive import END, message_entry
from penstock.records.record_codec import RecordKeys, encode_message, encode_range, scan
from penstock.records.record_columns import RecordColumns, block_columns, entry_columns

KEYS = RecordKeys(9, 1)
REMOVE = 3
ROWS_MAX, BYTES_MAX = 4, 1 << 20

Row = tuple[int, int, bytes, bytes, bytes]
messages = st.lists(
    st.tuples(
        st.integers(-(2**40), 2**40),
        st.binary(min_size=1, max_size=20),
        st.binary(max_size=20),
        st.binary(max_size=60),
    ),
    max_size=20,
)


def rows_of(columns: RecordColumns) -> list[Row]:
    def part(data: bytes, offsets: bytes, row: int) -> bytes:
        at = memoryview(offsets).cast("i")
        return data[at[row] : at[row + 1]]

    seqs, times = memoryview(columns.seqs).cast("q"), memoryview(columns.times).cast("q")
    return [
        (
            seqs[row],
            times[row],
            part(columns.subjects, columns.subject_offsets, row),
            part(columns.headers, columns.header_offsets, row),
            part(columns.payloads, columns.payload_offsets, row),
        )
        for row in range(columns.rows)
    ]


def from_block(image: bytes, wanted: bytes, first: int, bytes_max: int = BYTES_MAX) -> list[Row]:
    found: list[Row] = []
    place = 0
    while place < len(image):
        piece = block_columns(
            KEYS, image, place, len(image), wanted, first, rows_max=ROWS_MAX, bytes_max=bytes_max
        )
        assert piece.place > place
        assert piece.rows <= ROWS_MAX
        place = piece.place
        found += rows_of(piece)
    return found


@given(messages, st.data())
def test_columns_of_block_are_its_wanted_messages_that_hold(
    told: list[tuple[int, bytes, bytes, bytes]], data: st.DataObject
) -> None:
    image = b""
    for seq, (ts, subject, header, payload) in enumerate(told, start=5):
        image += encode_message(KEYS, seq, ts, subject, header, payload, deadline_ns=seq % 3)
        image += encode_range(KEYS, REMOVE, 1, 2, 3) if seq % 4 == 0 else b""
    if image and data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(image) - 1))
        image = image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :]
    wanted = bytes(data.draw(st.lists(st.integers(0, 1), min_size=len(told), max_size=len(told))))
    expected = [
        (seq, ts, parts[0], parts[1], parts[2])
        for _, _, verdict, kind, _, seq, ts, parts in scan(KEYS, image)
        if verdict == "valid" and kind == 1 and parts is not None and wanted[seq - 5]
    ]
    if wanted:
        assert from_block(image, wanted, 5) == expected
        assert from_block(image, wanted, 5, bytes_max=1) == expected


def test_message_outside_of_map_is_not_wanted() -> None:
    image = b"".join(encode_message(KEYS, seq, 1, b"s", b"", b"") for seq in (1, 2, 3, 4))
    assert [row[0] for row in from_block(image, b"\1\1", 2)] == [2, 3]
    assert from_block(image, b"", 2) == []


@given(messages, st.integers(1, 50))
def test_columns_of_archive_are_its_entries_however_it_is_cut(
    told: list[tuple[int, bytes, bytes, bytes]], piece: int
) -> None:
    rows = [(seq, *one) for seq, one in enumerate(told, start=1)]
    data = b"".join(
        message_entry(seq, ts, subject.decode("utf-8", "surrogateescape"), header, payload)
        for seq, ts, subject, header, payload in rows
    )
    data += END
    held, found, is_whole = b"", [], False
    for start in range(0, len(data), piece):
        held += data[start : start + piece]
        while True:
            columns, is_whole = entry_columns(
                held, 0, rows_max=ROWS_MAX, bytes_max=BYTES_MAX, entry_bytes_max=1000
            )
            found += rows_of(columns)
            held = held[columns.place :]
            if is_whole or not columns.rows:
                break
    assert is_whole
    assert found == rows


def test_entry_longer_than_allowed_is_refused_before_it_is_there() -> None:
    entry = message_entry(1, 1, "s", b"", bytes(1001))
    with pytest.raises(ValueError, match="longer"):
        entry_columns(entry[:8], 0, rows_max=1, bytes_max=1, entry_bytes_max=1000)
