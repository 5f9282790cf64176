"""The compiled intake: records gathered as columns, all else told in its place."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import delivery_model as deliveries
from penstock.bulk import wire_reader
from penstock.bulk.record_batch import Batch
from penstock.bulk.wire_reader import ServerItem, WireError, WireReader
from support.deliveries import TIME_NS, delivery, message

SID = 7
HEADER = b"NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
Row = tuple[str, int, int, bytes, bytes]


def make(
    records_max: int = 100, bytes_max: int = 1 << 20, frame_bytes_max: int = 1 << 20
) -> WireReader:
    made = WireReader(frame_bytes_max=frame_bytes_max, records_max=records_max, bytes_max=bytes_max)
    made.follow(SID)
    return made


def feed(into: WireReader, data: bytes) -> list[ServerItem]:
    """Give it all; what was heard. Marks of a full batch are left to the caller."""
    heard: list[ServerItem] = []
    while data:
        space = into.space()
        size = min(len(space), len(data))
        space[:size] = data[:size]
        into.filled(size)
        data = data[size:]
        while (one := into.next()) is not None:
            heard.append(one)
            if one.kind == wire_reader.FULL:
                return heard
    return heard


def kinds(heard: list[ServerItem]) -> list[int]:
    return [one.kind for one in heard]


def test_delivery_becomes_record_with_its_position() -> None:
    into = make()
    assert feed(into, delivery("a.b", b"hello", seq=41, consumer_seq=1, pending=3)) == []
    batch = into.take()
    assert batch.rows() == [("a.b", 41, TIME_NS + 41, b"", b"hello")]
    assert (batch.pending, batch.first, batch.last, len(batch)) == (3, 41, 41, 1)


def test_headers_come_as_they_stand() -> None:
    into = make()
    feed(into, delivery("a", b"v", seq=1, consumer_seq=1, header=HEADER))
    assert into.take().rows() == [("a", 1, TIME_NS + 1, HEADER, b"v")]


def test_position_after_domain_is_found() -> None:
    into = make()
    feed(into, delivery("a", b"", seq=9, consumer_seq=1, domain=True))
    assert into.take().last == 9


def test_gap_in_consumer_sequence_is_reported_and_later_messages_are_not_collected() -> None:
    into = make()
    data = delivery("a", b"1", seq=1, consumer_seq=1) + delivery("a", b"3", seq=3, consumer_seq=3)
    heard = feed(into, data + delivery("a", b"4", seq=4, consumer_seq=4))
    assert kinds(heard) == [wire_reader.GAP]
    assert into.gap_at == 3
    assert [row[4] for row in into.take().rows()] == [b"1"]


def test_new_consumer_counts_from_one_again() -> None:
    into = make()
    feed(into, delivery("a", b"", seq=1, consumer_seq=1))
    into.follow(8)
    assert feed(into, delivery("a", b"", seq=2, consumer_seq=1, sid=8)) == []
    assert into.gathered == 2


def test_deliveries_of_another_subscription_are_dropped() -> None:
    into = make()
    assert feed(into, delivery("a", b"", seq=1, consumer_seq=1, sid=3)) == []
    assert into.gathered == 0


def test_first_record_with_nothing_after_it_is_marked_once() -> None:
    into = make()
    into.follow(SID, mark_caught_up=True)
    data = b"".join(
        delivery("a", b"", seq=n, consumer_seq=n, pending=max(0, 2 - n)) for n in range(1, 5)
    )
    assert kinds(feed(into, data)) == [wire_reader.CAUGHT_UP]
    assert into.gathered == 4


def test_records_beyond_the_end_are_dropped_and_reported() -> None:
    into = make()
    into.follow(SID, stop_seq=5)
    assert feed(into, delivery("a", b"", seq=4, consumer_seq=1)) == []
    assert kinds(feed(into, delivery("a", b"", seq=5, consumer_seq=2))) == [wire_reader.FULL]
    assert into.take().last == 5
    assert kinds(feed(into, delivery("a", b"", seq=6, consumer_seq=3))) == [wire_reader.PAST_END]
    assert into.gathered == 0


def test_marks_are_yielded_in_order_with_records() -> None:
    into = make()
    beat = message(
        "_INBOX.d", reply="$JS.FC.S.c.x", header=b"NATS/1.0 100 FlowControl Request\r\n\r\n"
    )
    data = delivery("a", b"1", seq=1, consumer_seq=1) + beat
    heard = feed(into, data)
    assert kinds(heard) == [wire_reader.MESSAGE]
    assert (heard[0].reply, heard[0].sid, into.gathered) == ("$JS.FC.S.c.x", SID, 1)


def test_control_lines_are_reported_by_kind() -> None:
    heard = feed(make(), b"INFO {}\r\nPING\r\nPONG\r\n+OK\r\n-ERR 'Stale Connection'\r\n")
    assert kinds(heard) == [
        wire_reader.INFO,
        wire_reader.PING,
        wire_reader.PONG,
        wire_reader.OK,
        wire_reader.ERROR,
    ]
    assert heard[-1].payload == b"Stale Connection"


def test_full_batch_loses_nothing() -> None:
    into = make(records_max=2)
    data = b"".join(delivery("a", b"%d" % n, seq=n, consumer_seq=n) for n in range(1, 6))
    space = into.space()
    space[: len(data)] = data
    into.filled(len(data))
    rows: list[Row] = []
    while (heard := into.next()) is not None:
        assert heard.kind == wire_reader.FULL
        rows += into.take().rows()
    rows += into.take().rows()
    assert [row[4] for row in rows] == [b"1", b"2", b"3", b"4", b"5"]


def test_batch_is_full_by_bytes_too() -> None:
    into = make(bytes_max=10)
    heard = feed(into, delivery("a", b"x" * 50, seq=1, consumer_seq=1))
    assert kinds(heard) == [wire_reader.FULL]


def test_message_larger_than_room_is_read() -> None:
    into = make(bytes_max=8 << 20, frame_bytes_max=4 << 20)
    payload = bytes(range(256)) * 8192
    feed(into, delivery("a", payload, seq=1, consumer_seq=1))
    assert into.take().rows()[0][4] == payload


@pytest.mark.parametrize(
    "line",
    [
        b"MSG a 7\r\n",
        b"MSG a 7 x\r\n",
        b"HMSG a 7 9 3\r\nabc\r\n",
        b"MSG a 7 99999999\r\n",
        b"WHAT\r\n",
        b"MSG a 7 -1\r\n",
    ],
)
def test_not_protocol_is_refused(line: bytes) -> None:
    with pytest.raises(WireError):
        feed(make(), line)


def test_line_without_end_is_refused() -> None:
    with pytest.raises(WireError):
        feed(make(), b"INFO " + b"x" * (2 << 20))


@pytest.mark.parametrize(
    "reply", ["$JS.ACK.S.c.1.x.1.1.1", "$JS.ACK.S.c.1.1", "$JS.ACK." + "9." * 20]
)
def test_record_that_does_not_report_where_it_stands_is_not_guessed_at(reply: str) -> None:
    heard = feed(make(), message("a", reply=reply))
    assert kinds(heard) == [wire_reader.UNKNOWN_POSITION]


@pytest.mark.parametrize(
    "numbers",
    [
        "1.2.2.5",
        "1.2.2.5.",
        "1.2.2..5",
        "1.2.2.5.x",
        "1.2.2.5.0.0",
        "1.2.2.5.-1",
        "1.2.2.5.99999999999999999999",
        "1.2.2.5.9223372036854775808",
    ],
)
def test_not_after_one_that_did(numbers: str) -> None:
    into = make()
    feed(into, delivery("a", b"", seq=1, consumer_seq=1))
    assert kinds(feed(into, message("a", reply=f"$JS.ACK.S.c.{numbers}"))) == [
        wire_reader.UNKNOWN_POSITION
    ]
    assert into.gathered == 1


@st.composite
def talks(draw: st.DrawFn) -> bytes:
    """Anything a server may say while one consumer delivers."""
    said: list[bytes] = []
    seq = consumer_seq = 0
    for _ in range(draw(st.integers(0, 20))):
        kind = draw(st.sampled_from(["record", "record", "record", "other", "beat", "line"]))
        payload = draw(st.binary(max_size=40))
        if kind == "record":
            seq += draw(st.integers(1, 3))
            consumer_seq += 1
            header = draw(st.sampled_from([b"", HEADER]))
            said.append(
                delivery(
                    "a.é",
                    payload,
                    seq=seq,
                    consumer_seq=consumer_seq,
                    header=header,
                    domain=draw(st.booleans()),
                    consumer=draw(st.sampled_from(["c", "c", "c1", "x" * 600])),
                )
            )
        elif kind == "other":
            said.append(delivery("b", payload, seq=1, consumer_seq=9, sid=2))
        elif kind == "beat":
            said.append(message("_INBOX.x", payload, header=HEADER))
        else:
            said.append(draw(st.sampled_from([b"PING\r\n", b"PONG\r\n", b"+OK\r\n"])))
    return b"".join(said)


@given(data=talks(), chunk=st.integers(1, 60), records_max=st.integers(1, 5))
@settings(deadline=None)
def test_any_chunking_and_any_size_of_batch_give_what_model_reads(
    data: bytes, chunk: int, records_max: int
) -> None:
    into = make(records_max=records_max)
    rows: list[Row] = []
    others: list[tuple[int, object]] = []
    for at in range(0, len(data), chunk):
        part = data[at : at + chunk]
        space = into.space()
        space[: len(part)] = part
        into.filled(len(part))
        while (heard := into.next()) is not None:
            if heard.kind == wire_reader.FULL:
                rows += into.take().rows()
            else:
                others.append((len(rows) + into.gathered, shown(heard)))
    rows += into.take().rows()
    told = deliveries.read(data, SID)
    assert rows == told.records
    assert others == told.others


@given(
    data=st.lists(
        st.one_of(
            st.binary(max_size=30),
            st.sampled_from(
                [b"MSG ", b"HMSG ", b"a 7 ", b"$JS.ACK.S.c.1.1.1.1.0 ", b"3\r\n", b"\r\n"]
            ),
        ),
        max_size=30,
    )
)
@settings(deadline=None)
def test_garbage_is_read_or_refused_and_nothing_else(data: list[bytes]) -> None:
    into = make(frame_bytes_max=1000)
    with contextlib.suppress(WireError):
        feed(into, b"".join(data))
    assert len(into.take().rows()) <= len(data)


def shown(heard: ServerItem) -> object:
    lines = {wire_reader.PING: b"PING", wire_reader.PONG: b"PONG", wire_reader.OK: b"+OK"}
    return lines.get(heard.kind) or (heard.subject, heard.header + heard.payload)


def test_columns_that_do_not_fit_are_no_batch() -> None:
    with pytest.raises(ValueError, match="offsets"):
        Batch(0, 0, b"", b"", b"x", bytes(4), b"", bytes(4), b"", bytes(4))
    with pytest.raises(ValueError, match="as many"):
        Batch(1, 0, b"", b"", b"", bytes(8), b"", bytes(8), b"", bytes(8))


def test_first_missing_sequence_of_batch_is_found() -> None:
    into = make()
    seqs = [5, 6, 9]
    for number, seq in enumerate(seqs, 1):
        feed(into, delivery("a", b"", seq=seq, consumer_seq=number))
    batch = into.take()
    assert (batch.first_gap(4), batch.first_gap(3)) == (6, 3)
