"""Atomic batches: all of it or nothing, in a row, and bounded."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.api.advisories import BatchAbandoned
from penstock.base.effects import Advise
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits
from penstock.jetstream.streams.batches.staged_batches import InFlight
from penstock.jetstream.streams.entries import BatchEntry
from penstock.jetstream.streams.lanes.lane_policy import stages_batches as packs
from penstock.store.contract import Refusal
from support.stream_run import INTEREST, NEW, SECOND, Run, ack

INCOMPLETE = refusals.ATOMIC_PUBLISH_INCOMPLETE_BATCH
DUPLICATE = refusals.ATOMIC_PUBLISH_CONTAINS_DUPLICATE_MESSAGE
MAX_MSGS = Refusal.MAX_MSGS.value
CONSTANT = refusals.STREAM_WRONG_LAST_SEQUENCE_CONSTANT


def part(batch: str, seq: int | str, commit: str = "", **more: str) -> dict[str, str]:
    header = {"Nats-Batch-Id": batch, "Nats-Batch-Sequence": str(seq)}
    if commit:
        header["Nats-Batch-Commit"] = commit
    return header | {key.replace("_", "-"): value for key, value in more.items()}


@pytest.fixture(autouse=True, params=["checked", "packed"])
def is_packed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Streams of these tests pack common messages, as beside a lane, or check every message."""
    opened = Run.open

    def open_packing(run: Run) -> None:
        opened(run)
        run.stream.staged_batches.is_open = packs(run.cfg)

    if request.param == "packed":
        monkeypatch.setattr(Run, "open", open_packing)
    return bool(request.param == "packed")


def atomic(limits: BatchLimits | None = None, **fields: object) -> Run:
    options = {"batch_limits": limits} if limits else None
    return Run(options, **{"allow_atomic": True, "allow_rollup_hdrs": True, **fields})


def commit(run: Run, *items: dict[str, str]) -> refusals.ApiError | None:
    """Sends a batch whose messages go to s.a, s.b and so on; why it was refused, if it was."""
    for number, extra in enumerate(items, 1):
        header = part("b", number, "1" if number == len(items) else "") | extra
        subject = header.pop("to", f"s.{'abcdef'[number - 1]}")
        if number < len(items):
            assert run.publish(subject, header=header) == [b""]
        elif run.publish(subject, header=header)[0].startswith(b'{"error"'):
            return refused_last(run)
    return None


def refused_last(run: Run) -> refusals.ApiError:
    sent = run.effects[-1]
    code = int(sent.payload.split(b'"err_code":')[1][:5])  # type: ignore[union-attr]
    fault = refusals.CATALOGUE[code]
    if isinstance(fault, refusals.ApiError):
        return fault
    words = sent.payload.split(b'"description":"')[1].split(b'"}')[0]  # type: ignore[union-attr]
    return refusals.ApiError(fault.code, code, words.decode())


def test_nothing_is_stored_before_commit_and_then_all_in_row(is_packed: bool) -> None:
    run = atomic()
    assert run.publish("s.a", b"1", part("b", 1)) == [b""]
    run.publish("s.x", b"between")
    assert run.publish("s.b", b"2", part("b", 2)) == [b""]
    assert run.seqs() == [1]
    assert run.publish("s.c", b"3", part("b", 3, "1")) == ack(4, ',"batch":"b","count":3')
    stored = {seq: record.payload for seq, record in run.messages().items()}
    assert stored == {1: b"between", 2: b"1", 3: b"2", 4: b"3"}
    told = ((2, "s.a"), (3, "s.b"), (4, "s.c"))
    assert run.applied[-1].stored == (told[2:] if is_packed else told)
    assert run.applied[-1].is_bulk is is_packed
    entry = run.entries[-1]
    assert isinstance(entry, BatchEntry)
    assert (len(entry.items), bool(entry.packed)) == (1 if is_packed else 3, is_packed)


@pytest.mark.parametrize(
    ("changed", "refusal"),
    [
        ({"max_msg_size": 30}, refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM),
        (NEW | {"max_msgs": 1}, refusals.STREAM_STORE_FAILED(err=MAX_MSGS)),
        ({"max_msgs": 2}, None),
    ],
)
def test_waiting_batch_is_checked_with_config_at_commit(
    changed: dict[str, object], refusal: refusals.ApiError | None
) -> None:
    run = atomic()
    run.publish("s.a", b"1" * 20, part("b", 1))
    run.publish("s.b", b"2", part("b", 2))
    other = atomic(**changed).cfg
    run.apply(run.stream.plan_update(other, run.now_ns))
    run.publish("s.c", b"3", part("b", 3, "1"))
    assert run.seqs() == ([] if refusal else [2, 3])
    assert refusal is None or refused_last(run) == refusal


def test_expectation_on_subject_with_packed_message_is_refused() -> None:
    run = atomic()
    commit(run, {}, {})
    expected = {"Nats-Expected-Last-Subject-Sequence": "1"}
    assert commit(run, {"to": "s.a"}, {"to": "s.a"} | expected) == CONSTANT
    assert commit(run, {"to": "s.ab"}, {"to": "s.a"} | expected) is None
    assert commit(run, {}, {"Nats-Rollup": "all"}) is not None


def test_batch_may_end_with_marker_that_is_no_message_of_it() -> None:
    run = atomic()
    run.publish("s.a", b"1", part("b", 1))
    assert run.publish("s.a", b"", part("b", 2, "eob")) == ack(1, ',"batch":"b","count":1')
    assert run.messages()[1].header == (
        b"NATS/1.0\r\nNats-Batch-Id: b\r\nNats-Batch-Sequence: 1\r\nNats-Batch-Commit: 1\r\n\r\n"
    )
    assert run.refusal("s.a", b"", part("c", 1, "eob")) == INCOMPLETE


def test_missing_number_ends_batch() -> None:
    run = atomic()
    run.publish("s.a", b"1", part("b", 1))
    assert run.refusal("s.a", b"", part("b", 3)) == INCOMPLETE
    assert run.refusal("s.a", b"", part("b", 2, "1")) == INCOMPLETE
    assert run.seqs() == []


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ({"Nats-Batch-Id": "b"}, refusals.ATOMIC_PUBLISH_MISSING_SEQ),
        (part("b", "x"), refusals.ATOMIC_PUBLISH_MISSING_SEQ),
        (part("b", 2**64), refusals.ATOMIC_PUBLISH_MISSING_SEQ),
        (part("b", 2), INCOMPLETE),
        (part("b", 1001), refusals.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=1000)),
        (part("b", 1001, "eob"), INCOMPLETE),
        (part("b" * 65, 1), refusals.ATOMIC_PUBLISH_INVALID_BATCH_ID),
        (part("b", 1, "yes"), refusals.ATOMIC_PUBLISH_INVALID_BATCH_COMMIT),
        (part("b", 1, Nats_Required_Api_Level="99"), refusals.REQUIRED_API_LEVEL),
    ],
)
def test_invalid_beginning_of_batch_is_refused(
    header: dict[str, str], fault: refusals.ApiError
) -> None:
    run = atomic()
    assert run.refusal("s.a", b"", header) == fault
    assert run.stream.next_deadline_ns() is None or run.tick(60) == []


def test_batches_must_be_allowed() -> None:
    assert Run().refusal("s.a", b"", part("b", 1)) == refusals.ATOMIC_PUBLISH_DISABLED


@pytest.mark.parametrize(
    ("items", "fault"),
    [
        ([{}, {"Nats-Expected-Last-Sequence": "0"}], None),
        ([{"Nats-Expected-Last-Sequence": "2"}, {}], None),
        ([{}, {"Nats-Expected-Last-Sequence": "3"}], CONSTANT),
        ([{"to": "s.x", "Nats-Expected-Last-Subject-Sequence": "1"}, {}], None),
        ([{"to": "s.x"}, {"to": "s.x", "Nats-Expected-Last-Subject-Sequence": "1"}], CONSTANT),
        ([{"Nats-Expected-Last-Msg-Id": "seen"}], "header"),
        ([{"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "2"}], None),
        ([{"Nats-Msg-Id": "1"}, {"Nats-Msg-Id": "1"}], DUPLICATE),
        ([{}, {"Nats-Msg-Id": "seen"}], DUPLICATE),
        ([{"Nats-Rollup": "all"}, {}], None),
        ([{}, {"Nats-Rollup": "sub"}], None),
        ([{}, {"Nats-Rollup": "all"}], "batch rollup all invalid"),
        ([{}, {"to": "s.a", "Nats-Rollup": "sub"}], "batch rollup sub invalid"),
        ([{"Nats-TTL": "5"}, {}], refusals.MESSAGE_TTL_DISABLED),
        ([{"Nats-Stream-Source": "x"}, {}], refusals.MESSAGE_SOURCE_HDR_NOT_ALLOWED),
    ],
)
def test_one_message_that_is_refused_refuses_all(
    items: list[dict[str, str]], fault: refusals.ApiError | str | None
) -> None:
    run = atomic()
    run.publish("s.x", header={"Nats-Msg-Id": "seen"})
    run.publish("s.y")
    if items[-1].get("Nats-Expected-Last-Sequence") == "0":
        fault = refusals.STREAM_WRONG_LAST_SEQUENCE(seq=3)
    if fault == "header":
        key = "Nats-Expected-Last-Msg-Id"
        fault = refusals.ATOMIC_PUBLISH_UNSUPPORTED_HEADER_BATCH(header=key)
    elif isinstance(fault, str):
        fault = refusals.STREAM_ROLLUP_FAILED(err=fault)
    assert commit(run, *items) == fault
    assert run.stream.last_seq == (2 + len(items) if fault is None else 2)


def test_batch_must_fit_as_whole() -> None:
    run = atomic(**NEW, max_msgs=3)
    run.publish("s.x")
    full = refusals.STREAM_STORE_FAILED(err="maximum messages exceeded")
    assert commit(run, {}, {}, {}) == full
    assert commit(run, {}, {}) is None
    crowded = atomic(**NEW, max_msgs_per_subject=1, discard_new_per_subject=True)
    words = "maximum messages per subject exceeded"
    fault = refusals.STREAM_STORE_FAILED(err=words)
    assert commit(crowded, {"to": "s.a"}, {"to": "s.a"}) == fault
    assert commit(crowded, {"to": "s.a"}, {"to": "s.b"}) is None


def test_counters_add_up_within_batch() -> None:
    run = Run(allow_atomic=True, allow_msg_counter=True)
    items = [{"to": "s.a", "Nats-Incr": "2"}, {"to": "s.a", "Nats-Incr": "3"}]
    assert commit(run, *items) is None
    assert [record.payload for record in run.messages().values()] == [
        b'{"val":"2"}',
        b'{"val":"5"}',
    ]


def test_only_wanted_messages_of_batch_are_kept() -> None:
    run = atomic(**INTEREST)
    run.wanted.add("s.b")
    assert commit(run, {}, {}, {}) is None
    assert (run.seqs(), run.stream.last_seq) == ([2], 3)


def test_silent_batch_is_given_up_and_that_is_reported() -> None:
    run = atomic()
    run.publish("s.a", header=part("b", 1))
    run.now_ns += 9 * SECOND
    run.publish("s.a", header=part("b", 2))
    run.tick(9)
    run.effects.clear()
    run.tick(1)
    event = BatchAbandoned(stream="S", batch="b", reason="timeout")
    assert run.effects == [Advise("$JS.EVENT.ADVISORY.STREAM.BATCH_ABANDONED.S", event)]
    assert run.stream.next_deadline_ns() is None
    assert run.refusal("s.a", b"", part("b", 3, "1")) == INCOMPLETE


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (part("b", 3), "incomplete"),
        (part("b", 2, Nats_Required_Api_Level="99"), "unsupported"),
    ],
)
def test_broken_batch_is_reported(header: dict[str, str], reason: str) -> None:
    run = atomic()
    run.publish("s.a", header=part("b", 1))
    run.publish("s.a", header=header)
    advice = run.effects[1]
    assert isinstance(advice, Advise)
    assert isinstance(advice.event, BatchAbandoned)
    assert advice.event.reason == reason


def test_batch_has_so_many_messages_and_no_more() -> None:
    run = atomic(BatchLimits(msgs_max=2))
    assert commit(run, {}, {}) is None
    for number in (1, 2):
        run.publish("s.a", header=part("b", number))
    large = refusals.ATOMIC_PUBLISH_TOO_LARGE_BATCH(size=2)
    assert run.refusal("s.a", b"", part("b", 3, "1")) == large
    for number in (1, 2):
        run.publish("s.a", header=part("b", number))
    assert run.publish("s.a", b"", part("b", 3, "eob")) == ack(4, ',"batch":"b","count":2')


def test_so_many_batches_are_under_way_and_no_more() -> None:
    shared = InFlight()
    limits = BatchLimits(atomic_max=2, atomic_total_max=3)
    fields = {"allow_atomic": True}
    one, two = (Run({"batch_limits": limits, "in_flight": shared}, **fields) for _ in "12")
    crowded = refusals.ATOMIC_PUBLISH_TOO_MANY_INFLIGHT
    for run, batch in ((one, "a"), (one, "b"), (two, "a")):
        assert run.publish("s.a", header=part(batch, 1)) == [b""]
    assert one.refusal("s.a", b"", part("c", 1)) == crowded
    assert two.refusal("s.a", b"", part("b", 1)) == crowded
    assert one.publish("s.a", header=part("a", 2, "1")) == ack(2, ',"batch":"a","count":2')
    assert two.publish("s.a", header=part("b", 1)) == [b""]
    one.stream.close()
    two.stream.close()
    assert shared.atomic == 0


def test_batches_end_when_stream_does_not_allow_them_any_more() -> None:
    run = atomic()
    run.publish("s.a", header=part("b", 1))
    forbidding = Run().cfg
    run.apply(run.stream.plan_update(forbidding, run.now_ns))
    assert run.refusal("s.a", b"", part("b", 2, "1")) == refusals.ATOMIC_PUBLISH_DISABLED
    assert run.stream.next_deadline_ns() is None
