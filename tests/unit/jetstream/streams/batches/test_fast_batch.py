"""Fast batches: messages stored one by one, acknowledged now and then."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits
from penstock.jetstream.streams.batches.fast_batch import FastRequest, parse_reply
from penstock.jetstream.streams.batches.staged_batches import InFlight
from support.stream_run import SECOND, Run, ack

START, APPEND, COMMIT, COMMIT_WITHOUT, PING = range(5)


class Publisher:
    """One batch, as its publisher sends it."""

    def __init__(self, run: Run, batch: str = "b", *, flow: int = 10, gap: str = "fail") -> None:
        self.run, self.batch, self.flow, self.gap = run, batch, flow, gap

    def send(self, seq: int, op: int | None = None, header: dict[str, str] | None = None) -> str:
        """One message; everything its publisher hears of it."""
        if op is None:
            op = START if seq == 1 else APPEND
        reply = f"r.{self.batch}.{self.flow}.{self.gap}.{seq}.{op}.$FI"
        return b" ".join(self.run.publish("s.a", b"%d" % seq, header, reply=reply)).decode()


def fast(**fields: object) -> Run:
    return Run(allow_batched=True, **fields)


def flow(seq: int, msgs: int) -> str:
    return f'{{"type":"ack","seq":{seq},"msgs":{msgs}}}'


def gap(expected: int, got: int) -> str:
    return f'{{"type":"gap","last_seq":{expected},"seq":{got}}}'


def done(seq: int, count: int, batch: str = "b") -> str:
    return ack(seq, f',"batch":"{batch}","count":{count}')[0].decode()


@pytest.mark.parametrize(
    ("reply", "request_"),
    [
        ("a.b.id.7.ok.3.1.$FI", FastRequest("id", 7, True, 3, APPEND)),
        ("a.id.7.fail.1.0.$FI", FastRequest("id", 7, False, 1, START)),
        ("a.id.0.fail.1.0.$FI", FastRequest("id", 10, False, 1, START)),
        ("a.id.x.fail.9.4.$FI", FastRequest("id", 10, False, 9, PING)),
        ("a.id.99999.fail.1.2.$FI", FastRequest("id", 65_535, False, 1, COMMIT)),
        ("id.7.ok.3.1.$FI", None),
        ("a.id.7.maybe.3.1.$FI", None),
        ("a.id.7.ok.0.0.$FI", None),
        ("a.id.7.ok.x.1.$FI", None),
        ("a.id.7.ok.3.5.$FI", None),
        ("a.id.7.ok.3.-1.$FI", None),
        ("a.id.7.ok.2.0.$FI", None),
        ("a.id.7.ok.1.1.$FI", None),
        ("a.id.7.ok.1.3.$FI", None),
        ("$FI", None),
    ],
)
def test_reply_subjects_report_what_to_do(reply: str, request_: FastRequest | None) -> None:
    assert parse_reply(reply) == request_


def test_messages_are_stored_at_once_and_acknowledged_now_and_then() -> None:
    run = fast()
    batch = Publisher(run, flow=3)
    assert [batch.send(seq) for seq in range(1, 8)] == [
        flow(0, 3),
        "",
        flow(3, 3),
        "",
        "",
        flow(6, 3),
        "",
    ]
    assert run.seqs() == [1, 2, 3, 4, 5, 6, 7]
    assert batch.send(8, COMMIT) == done(8, 8)


def test_batch_of_one_is_only_committed() -> None:
    assert Publisher(fast()).send(1, COMMIT) == done(1, 1)


def test_batch_may_end_without_another_message() -> None:
    run = fast()
    batch = Publisher(run)
    batch.send(1)
    batch.send(2)
    assert batch.send(3, COMMIT_WITHOUT) == done(2, 2)
    assert run.seqs() == [1, 2]


def test_gap_ends_batch_that_may_have_none() -> None:
    run = fast()
    batch = Publisher(run)
    batch.send(1)
    assert batch.send(4) == f"{gap(2, 4)} {done(1, 1)}"
    assert run.seqs() == [1]
    assert "10208" in batch.send(5)


def test_gap_is_reported_and_passed_over_if_that_is_fine() -> None:
    run = fast()
    batch = Publisher(run, gap="ok", flow=2)
    assert batch.send(1) == flow(0, 2)
    assert batch.send(6) == f"{gap(2, 6)} {flow(6, 2)}"
    assert batch.send(9, COMMIT) == f"{gap(7, 9)} {done(3, 9)}"
    assert run.seqs() == [1, 2, 3]


def test_number_that_was_there_ends_any_batch() -> None:
    batch = Publisher(fast(), gap="ok")
    batch.send(1)
    batch.send(2)
    assert batch.send(2) == f"{gap(3, 2)} {done(2, 2)}"


def test_ping_reports_again_how_far_it_is() -> None:
    batch = Publisher(fast(), flow=2)
    for seq in (1, 2, 3):
        batch.send(seq)
    assert batch.send(3, PING) == flow(2, 2)
    assert batch.send(5, PING) == f"{gap(4, 6)} {done(3, 3)}"
    patient = Publisher(fast(), flow=2, gap="ok")
    patient.send(1)
    assert patient.send(7, PING) == f"{gap(2, 8)} {flow(6, 2)}"


def test_refused_message_ends_batch_or_is_passed_over() -> None:
    wrong = {"Nats-Expected-Stream": "T"}
    fault = '{"code":400,"err_code":10060,"description":"expected stream does not match"}'
    batch = Publisher(fast())
    batch.send(1)
    told = f'{{"type":"err","seq":2,"error":{fault}}}'
    assert batch.send(2, header=wrong) == f"{told} {done(1, 1)}"
    patient = Publisher(fast(), gap="ok")
    patient.send(1)
    assert patient.send(2, header=wrong) == told
    assert patient.send(3, COMMIT) == done(2, 3)


def test_batch_that_is_refused_from_the_start_is_refused_like_message() -> None:
    wrong = {"Nats-Expected-Stream": "T"}
    said = Publisher(fast()).send(1, header=wrong)
    assert said.startswith(flow(0, 10))
    assert said.endswith('"expected stream does not match"},"stream":"S","seq":0}')


def test_duplicates_count_as_taken() -> None:
    run = fast()
    run.publish("s.a", header={"Nats-Msg-Id": "x"})
    batch = Publisher(run, flow=2)
    batch.send(1)
    assert batch.send(2, header={"Nats-Msg-Id": "x"}) == flow(2, 2)
    assert batch.send(3, COMMIT) == done(3, 3)
    single = Publisher(run, "c").send(1, COMMIT, {"Nats-Msg-Id": "x"})
    assert single == '{"stream":"S","seq":1,"duplicate": true,"batch":"c","count":1}'


def test_batches_share_what_may_be_unacknowledged() -> None:
    run = fast()
    one, two = Publisher(run, "a", flow=1000), Publisher(run, "b", flow=1000)
    assert one.send(1) == flow(0, 500)
    assert two.send(1) == f"{flow(0, 1)} {flow(1, 2)}"
    assert [two.send(seq) for seq in range(2, 5)] == ["", flow(3, 4), ""]


@pytest.mark.parametrize(
    ("run", "batch", "seq", "op", "fault"),
    [
        (Run(), "b", 1, START, refusals.BATCH_PUBLISH_DISABLED),
        (fast(sealed=True), "b", 1, START, refusals.STREAM_SEALED),
        (fast(max_msg_size=1), "b", 10, APPEND, refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM),
        (fast(), "b" * 65, 1, START, refusals.BATCH_PUBLISH_INVALID_BATCH_ID),
        (fast(), "b", 2, APPEND, refusals.BATCH_PUBLISH_UNKNOWN_BATCH_ID),
        (fast(), "b", 1, PING, refusals.BATCH_PUBLISH_UNKNOWN_BATCH_ID),
        (fast(), "b", 1, 9, refusals.BATCH_PUBLISH_INVALID_PATTERN),
    ],
)
def test_message_that_cannot_join_batch_is_refused(
    run: Run, batch: str, seq: int, op: int, fault: refusals.ApiError
) -> None:
    said = Publisher(run, batch).send(seq, op)
    assert f'"err_code":{fault.err_code},' in said


def test_silent_batch_is_forgotten_and_what_it_stored_stays() -> None:
    run = fast()
    batch = Publisher(run)
    batch.send(1)
    run.now_ns += 9 * SECOND
    batch.send(2)
    run.tick(9)
    assert batch.send(3) == ""
    run.tick(10)
    assert "10208" in batch.send(4)
    assert run.seqs() == [1, 2, 3]
    assert run.stream.next_deadline_ns() is None


def test_so_many_batches_are_under_way_and_no_more() -> None:
    shared = InFlight()
    limits = BatchLimits(fast_max=2, fast_total_max=3)
    one, two = (
        Run({"batch_limits": limits, "in_flight": shared}, allow_batched=True) for _ in "12"
    )
    for run, batch in ((one, "a"), (one, "b"), (two, "a")):
        assert "ack" in Publisher(run, batch).send(1)
    assert "10211" in Publisher(one, "c").send(1)
    assert "10211" in Publisher(two, "b").send(1)
    one.stream.close()
    assert "ack" in Publisher(two, "b").send(1)
