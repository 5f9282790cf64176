"""Runs of messages out of a log and into one: what the modules that go one by one would do."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.jetstream.archive import stream_archive
from penstock.jetstream.archive.archive_lane import ArchiveIntake, copy_out
from penstock.records.varint_rows import pack
from penstock.store.index.message_log import MessageLog
from penstock.store.index.removal_index import remove_one

BYTES_MAX = 1 << 16
MESSAGE_BYTES_MAX = 40
HUGE = 1 << 40
SUBJECTS = st.sampled_from(["a", "a.b", "c.d.e", "longer.than.others", "é"])
BODIES = st.binary(max_size=MESSAGE_BYTES_MAX // 2)
MESSAGES = st.lists(
    st.tuples(st.integers(1, 3), SUBJECTS, BODIES, BODIES, st.integers(0, 9)), max_size=30
)


def filled(drawn: list[tuple[int, str, bytes, bytes, int]]) -> MessageLog:
    """A log with gaps; sequences and times rise by what was drawn."""
    log = MessageLog(durable=True, block_bytes=512)
    seq = ts_ns = 0
    for step, subject, header, payload, later in drawn:
        seq, ts_ns = seq + step, ts_ns + later
        log.append(subject, header, payload, ts_ns, seq=seq)
    return log


def entries(log: MessageLog, start: int, last: int) -> list[bytes]:
    found = (log.load(seq) for seq in range(start, last + 1))
    return [stream_archive.message_entry(*one) for one in found if one is not None]


def contents(log: MessageLog) -> list[object]:
    return [log.load(seq) for seq in range(log.last_seq + 1)]


def intake(log: MessageLog, **options: int) -> ArchiveIntake:
    bounds = {"msgs_max": -1, "bytes_max": 0, "per_subject_max": -1, **options}
    bounds.setdefault("message_bytes_max", MESSAGE_BYTES_MAX)
    return ArchiveIntake(log, takes_headers=bool(bounds.pop("takes_headers", 1)), **bounds)


def rise(log: MessageLog) -> int:
    return log.last_seq + 1


@given(MESSAGES, st.integers(0, 20), st.integers(0, 20), st.sets(st.integers(1, 30)))
def test_run_is_entries_of_its_messages(
    drawn: list[tuple[int, str, bytes, bytes, int]], start: int, last: int, gone: set[int]
) -> None:
    log = filled(drawn)
    for seq in gone:
        remove_one(log, seq, log.last_ts_ns)
    run, stopped = copy_out(log, start, last, BYTES_MAX)
    assert run == b"".join(entries(log, start, last))
    assert log.next_seq((), stopped) in (0, *range(last + 1, rise(log)))


@given(MESSAGES, st.integers(0, 400))
def test_runs_within_bounds_make_up_whole(
    drawn: list[tuple[int, str, bytes, bytes, int]], bytes_max: int
) -> None:
    log = filled(drawn)
    whole, seq = b"", 0
    while True:
        run, seq = copy_out(log, seq, log.last_seq, bytes_max)
        assert len(run) <= bytes_max
        if not run:
            break
        whole += run
    assert whole + b"".join(entries(log, seq, log.last_seq)) == b"".join(
        entries(log, 0, log.last_seq)
    )


def test_nothing_is_copied_that_readers_may_not_see() -> None:
    log = filled([(1, "a", b"", b"x", 1)] * 4)
    log.visible_max = 2
    assert copy_out(log, 0, 4, BYTES_MAX) == (b"".join(entries(log, 1, 2)), 3)


@given(MESSAGES, st.integers(0, 200))
def test_exported_copy_can_be_imported(
    drawn: list[tuple[int, str, bytes, bytes, int]], cut: int
) -> None:
    """Whole entries only; from the first on that is not ASCII it is for others."""
    log = filled(drawn)
    data = copy_out(log, 0, log.last_seq, BYTES_MAX)[0]
    data = data[: len(data) - cut] if cut else data
    expected, at = MessageLog(durable=True), 0
    for seq in range(log.last_seq + 1):
        one = log.load(seq)
        if one is None:
            continue
        size = len(stream_archive.message_entry(*one))
        if at + size > len(data) or not one.subject.isascii():
            break
        at += size
        expected.append(one.subject, one.header, one.payload, one.ts_ns, seq=one.seq)
    copy = MessageLog(durable=True)
    taking = intake(copy)
    assert taking.copy_in(data, 0, BYTES_MAX) == at
    assert contents(copy) == contents(expected)
    assert (copy.first_seq, copy.last_seq, copy.last_ts_ns, copy.total_size) == (
        expected.first_seq, expected.last_seq, expected.last_ts_ns, expected.total_size,
    )  # fmt: skip


def taken(data: bytes, **options: int) -> int:
    """How many of the messages are taken in."""
    log = MessageLog(durable=True)
    intake(log, **options).copy_in(data, 0, BYTES_MAX)
    return log.msgs


def entry(
    seq: int, subject: str = "a", ts_ns: int = 5, header: bytes = b"", size: int = 1
) -> bytes:
    return stream_archive.message_entry(seq, ts_ns, subject, header, b"x" * size)


def test_not_ordinary_is_left_to_others() -> None:
    odd = [
        entry(1),  # not behind the last
        entry(2, ts_ns=4),  # older than the last
        entry(2, ts_ns=-4),
        entry(2**64 - 1),
        entry(2, "a..b"),
        entry(2, "a.*"),
        entry(2, "a b"),
        entry(2, ""),
        entry(2, "x" * 20_000),
        entry(2, size=MESSAGE_BYTES_MAX + 1),
        stream_archive.END,
        pack(1, 10, 2, HUGE, 2**64 - HUGE) + b"a",
        b"\xff" * 30,
    ]
    for one in odd:
        assert taken(entry(1) + one + entry(3)) == 1, one
    assert taken(entry(1) + entry(2) + entry(4)) == 3


def test_headers_are_left_to_others_where_they_may_report_time_to_live() -> None:
    data = entry(1) + entry(2, header=b"NATS/1.0\r\n\r\n")
    assert taken(data) == 2
    assert taken(data, takes_headers=0) == 1


def test_nothing_is_taken_in_that_others_would_have_to_go_for() -> None:
    data = entry(1, "a") + entry(2, "b") + entry(3, "a") + entry(4, "c")
    assert taken(data) == 4
    assert taken(data, msgs_max=3) == 3
    assert taken(data, per_subject_max=1) == 2
    assert taken(data, per_subject_max=2) == 4
    size = MessageLog(durable=True).message_size("a", b"", b"x")
    assert taken(data, bytes_max=2 * size) == 2


def test_bytes_taken_in_are_counted_and_bounded() -> None:
    data = b"".join(entry(seq, size=30) for seq in range(1, 50))
    log = MessageLog(durable=True)
    taking = intake(log)
    stopped = taking.copy_in(data, 0, 100)
    assert 100 <= stopped < 200
    assert taking.taken_bytes == 30 * log.msgs
    assert taking.copy_in(data, stopped, BYTES_MAX) == len(data)
