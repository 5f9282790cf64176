"""Rows become publishes as a naive writer would spell them, whatever the columns look like."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.publish_acks import Window
from penstock.bulk.publish_frames import RowError, Values, encode

INBOX = b"_INBOX.me."
Row = tuple[bytes, bytes, bytes, bytes]


def column(values: list[bytes], before: int = 0) -> Values:
    """A column whose buffers hold a few values in front of the first one meant."""
    run = [b"junk"] * before + values
    offsets = [0]
    for value in run:
        offsets.append(offsets[-1] + len(value))
    return Values(len(values), struct.pack(f"={len(offsets)}i", *offsets), b"".join(run), before)


def naive(number: int, row: Row, inbox: bytes) -> bytes:
    subject, payload, ident, lines = row
    inner = (b"Nats-Msg-Id: " + ident + b"\r\n" if ident else b"") + lines
    block = b"NATS/1.0\r\n" + inner + b"\r\n" if inner else b""
    words = [b"HPUB" if block else b"PUB", subject]
    if inbox:
        words.append(inbox + b"%d" % number)
    if block:
        words.append(b"%d" % len(block))
    words.append(b"%d" % (len(block) + len(payload)))
    return b" ".join(words) + b"\r\n" + block + payload + b"\r\n"


tokens = st.text("abcXYZ019-_$*>", min_size=1, max_size=5).filter(lambda one: one not in "*>")
subjects = st.lists(tokens, min_size=1, max_size=4).map(lambda one: ".".join(one).encode())
lines = st.sampled_from([b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"])
rows = st.tuples(subjects, st.binary(max_size=20), st.sampled_from([b"", b"id-1", b"x"]), lines)


@given(
    given_rows=st.lists(rows, min_size=1, max_size=20),
    before=st.integers(0, 3),
    first=st.integers(0, 10**12),
    inbox=st.sampled_from([b"", INBOX]),
    rows_max=st.integers(1, 7),
)
def test_any_rows_are_spelt_as_naive_writer_spells_them(
    given_rows: list[Row], before: int, first: int, inbox: bytes, rows_max: int
) -> None:
    columns = [column(list(one), before) for one in zip(*given_rows, strict=True)]
    said, row = b"", 0
    while row < len(given_rows):
        frames = encode(
            columns[0],
            columns[1],
            ids=columns[2],
            lines=columns[3],
            start=row,
            first=first + row,
            inbox=inbox,
            rows_max=rows_max,
        )
        assert 1 <= frames.count <= rows_max
        said += frames.data
        row += frames.count
    assert said == b"".join(naive(first + at, one, inbox) for at, one in enumerate(given_rows))


def test_one_value_stands_for_every_row() -> None:
    frames = encode(Values.one(b"a", 2), column([b"1", b"22"]))
    assert frames.data == b"PUB a 1\r\n1\r\nPUB a 2\r\n22\r\n"


@given(st.lists(rows, min_size=1, max_size=12), st.integers(0, 3))
def test_members_of_batch_count_from_one_wherever_they_begin(
    given_rows: list[Row], start: int
) -> None:
    start = min(start, len(given_rows) - 1)
    columns = [column(list(one)) for one in zip(*given_rows, strict=True)]
    frames = encode(columns[0], columns[1], lines=columns[3], start=start, batch=b"B7")
    assert frames.data == b"".join(
        naive(0, (subject, payload, b"", _of_batch(member) + lines), b"")
        for member, (subject, payload, _, lines) in enumerate(given_rows[start:], 1)
    )


def _of_batch(member: int) -> bytes:
    return b"Nats-Batch-Id: B7\r\nNats-Batch-Sequence: %d\r\n" % member


def test_frame_that_is_larger_than_all_room_goes_alone() -> None:
    payloads = column([b"x" * 1000, b"y"])
    assert encode(Values.one(b"a", 2), payloads, bytes_max=10).count == 1


@pytest.mark.parametrize(
    "subject", ["", "a b", "a\r\nPUB b 0", "a.", ".a", "a..b", "*", "a.*.b", "a.>", "a\tb", "\x7f"]
)
def test_row_with_invalid_subject_is_refused(subject: str) -> None:
    with pytest.raises(RowError) as refused:
        encode(column([b"fine", subject.encode()]), Values.one(b"", 2))
    assert refused.value.row == 1


def test_headers_and_payload_together_are_held_to_servers_limit() -> None:
    ids = column([b"i"])
    size = len(b"NATS/1.0\r\nNats-Msg-Id: i\r\n\r\n") + 10
    taken = encode(Values.one(b"a", 1), column([b"x" * 10]), ids=ids, payload_bytes_max=size)
    assert taken.count == 1
    with pytest.raises(RowError, match=f"{size} bytes"):
        encode(Values.one(b"a", 1), column([b"x" * 10]), ids=ids, payload_bytes_max=size - 1)


def test_only_what_is_unanswered_is_reported_again() -> None:
    window = Window(8)
    frames = encode(Values.one(b"a", 4), column([b"0", b"1", b"2", b"3"]))
    window.open(4)
    window.record_answer(0)
    window.record_answer(2)
    assert frames.unanswered(window) == frames.frame(1) + frames.frame(3)


@pytest.mark.parametrize(
    ("count", "offsets"), [(2, [0, 1]), (1, [0, 9]), (2, [0, 2, 1]), (1, [-1, 0])]
)
def test_offsets_that_lead_outside_are_refused(count: int, offsets: list[int]) -> None:
    with pytest.raises(ValueError, match="offset"):
        Values(count, struct.pack(f"={len(offsets)}i", *offsets), b"ab")


def test_columns_of_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="one length"):
        encode(column([b"a"]), column([b"", b""]))


def test_common_header_lines_come_before_those_of_row() -> None:
    two = Values.one(b"x", 2)
    lines = Values(2, struct.pack("<3i", 0, 0, 6), b"A: b\r\n")
    frames = encode(two, two, lines=lines, common=b"C: d\r\n")
    assert frames.frame(0) == b"HPUB x 18 19\r\nNATS/1.0\r\nC: d\r\n\r\nx\r\n"
    assert frames.frame(1) == b"HPUB x 24 25\r\nNATS/1.0\r\nC: d\r\nA: b\r\n\r\nx\r\n"
