"""Mirrors and sources: what a delivery of an origin means, and what is stored of it."""

from __future__ import annotations

import pytest

from penstock.api.ack_protocol import AckRef
from penstock.api.stream_config import External, SourceConsumer, StreamSource, SubjectTransform
from penstock.base.message import Inbound
from penstock.base.short_hash import short_hash
from penstock.jetstream.streams.entries import Answer, Publish
from penstock.jetstream.streams.source_progress import (
    Progress,
    SourceRef,
    SourceStep,
    copied_header,
    index_name,
    parse_note,
    source_note,
)
from support.stream_run import NEW, NEW_YEAR, Run, block


def ref(seq: int, consumer_seq: int, *, consumer: str = "c", delivered: int = 1) -> AckRef:
    return AckRef("O", consumer, delivered, seq, consumer_seq, NEW_YEAR + seq, 5)


def reading(*, is_mirror: bool = False, seq: int = 0) -> Progress:
    progress = Progress(StreamSource(name="O"), is_mirror=is_mirror, seq=seq)
    progress.started("c")
    return progress


@pytest.mark.parametrize(
    ("source", "name"),
    [
        (StreamSource(name="O"), "O > >"),
        (StreamSource(name="O", filter_subject="a.*"), "O a.* >"),
        (
            StreamSource(
                name="O",
                subject_transforms=(
                    SubjectTransform(src="a.*", dest="b.{{wildcard(1)}}"),
                    SubjectTransform(src="", dest=""),
                ),
            ),
            "O a.*\f> b.{{wildcard(1)}}\f>",
        ),
        (
            StreamSource(name="O", external=External(api="$JS.hub.API")),
            f"O:{short_hash('$JS.hub.API')} > >",
        ),
        (
            StreamSource(name="O", consumer=SourceConsumer(name="dur")),
            f"O:C={short_hash('dur')} > >",
        ),
    ],
)
def test_sources_are_distinguished_by_origin_filters_and_destinations(
    source: StreamSource, name: str
) -> None:
    assert index_name(source) == name


def test_note_is_read_as_it_was_written() -> None:
    note = source_note("O a.> b.>", 12, "a.x", "6DeHHitL")
    assert note == b"O 12 a.> b.> a.x 6DeHHitL"
    assert parse_note(note) == SourceRef("O", "O a.> b.>", 12, "6DeHHitL")
    assert parse_note(source_note("O > >", 1, "a")) == SourceRef("O", "O > >", 1, "")


@pytest.mark.parametrize(
    ("note", "found"),
    [
        (b"O 5", SourceRef("O", "", 5, "")),
        (b"O 5 > >", SourceRef("O", "O > >", 5, "")),
        (b"O", None),
        (b"O 5 >", None),
        (b"O five > >", None),
        (b"", None),
    ],
)
def test_notes_of_old_servers_are_read_and_garbage_is_not(
    note: bytes, found: SourceRef | None
) -> None:
    assert parse_note(note) == found


def test_copy_keeps_no_expectation_batch_or_older_note() -> None:
    header = block(
        {
            "A": "b",
            "Nats-Expected-Last-Sequence": "1",
            "Nats-Batch-Id": "x",
            "Nats-Batch-Sequence": "1",
            "Nats-Stream-Source": "P 1 > > z",
            "Nats-Msg-Id": "m",
        }
    )
    assert copied_header(header, b"O 1 > > a") == (
        b"NATS/1.0\r\nA: b\r\nNats-Msg-Id: m\r\nNats-Stream-Source: O 1 > > a\r\n\r\n"
    )
    assert copied_header(b"", b"n") == b"NATS/1.0\r\nNats-Stream-Source: n\r\n\r\n"


# -- deliveries


def test_deliveries_in_order_are_stored_whatever_origin_lost() -> None:
    progress = reading()
    assert progress.take(ref(3, 1)) is SourceStep.STORE
    assert progress.take(ref(9, 2)) is SourceStep.STORE
    assert (progress.seq, progress.lag) == (9, 4)


def test_missing_delivery_restarts_after_last_message() -> None:
    progress = reading()
    progress.take(ref(1, 1))
    assert progress.take(ref(5, 3)) is SourceStep.RESTART
    assert progress.seq == 1
    progress.started("d")
    assert progress.take(ref(2, 1, consumer="d")) is SourceStep.STORE


def test_known_redelivered_or_foreign_messages_are_ignored() -> None:
    progress = reading(seq=4)
    assert progress.take(ref(4, 1)) is SourceStep.IGNORE
    assert progress.take(ref(5, 2)) is SourceStep.STORE
    assert progress.take(ref(6, 3, delivered=2)) is SourceStep.IGNORE
    assert progress.take(ref(6, 3, consumer="other")) is SourceStep.IGNORE
    assert progress.take(ref(9, 1)) is SourceStep.IGNORE
    assert progress.seq == 5


def test_mirror_takes_very_next_sequence_in_any_case() -> None:
    mirror = reading(is_mirror=True, seq=4)
    assert mirror.take(ref(5, 7)) is SourceStep.STORE
    assert mirror.take(ref(8, 8)) is SourceStep.STORE
    assert mirror.take(ref(20, 19)) is SourceStep.RESTART
    assert mirror.take(ref(20, 3)) is SourceStep.RESTART


def test_first_to_deliver_is_taken_if_no_consumer_is_named() -> None:
    progress = Progress(StreamSource(name="O"))
    assert progress.take(ref(5, 9, consumer="x")) is SourceStep.STORE
    assert progress.take(ref(6, 10, consumer="y")) is SourceStep.IGNORE


def test_heartbeat_reports_what_was_missed() -> None:
    progress = reading()
    progress.take(ref(1, 1))
    assert progress.heartbeat(1) is SourceStep.IGNORE
    assert progress.heartbeat(0) is SourceStep.IGNORE
    assert progress.heartbeat(2) is SourceStep.RESTART


# -- what is stored


def test_copy_has_sequence_of_its_own_and_reports_where_it_came_from() -> None:
    source = StreamSource(
        name="O", subject_transforms=(SubjectTransform(src="o.*", dest="s.{{wildcard(1)}}"),)
    )
    run = Run(sources=(source,))
    run.publish("s.x")
    progress = Progress(source)
    progress.identity = "6DeHHitL"
    planned = run.stream.plan_copy(Inbound("o.a", "", b"", b"body"), 40, progress, NEW_YEAR)
    assert isinstance(planned, Publish)
    run.apply(planned)
    record = run.messages()[2]
    assert (record.subject, record.payload) == ("s.a", b"body")
    assert record.header == (
        b"NATS/1.0\r\nNats-Stream-Source: O 40 o.* s.{{wildcard(1)}} o.a 6DeHHitL\r\n\r\n"
    )


def test_copy_may_be_duplicate_or_find_no_room() -> None:
    source = StreamSource(name="O")
    run = Run(**NEW, max_msgs=1, sources=(source,))
    run.publish("s.x", header={"Nats-Msg-Id": "m"})
    progress = Progress(source)
    known = run.stream.plan_copy(
        Inbound("s.a", "", block({"Nats-Msg-Id": "m"}), b""), 1, progress, NEW_YEAR
    )
    assert known == Answer(is_duplicate=True)
    full = run.stream.plan_copy(Inbound("s.a", "", b"", b""), 2, progress, NEW_YEAR)
    assert isinstance(full, Answer)
    assert full.refusal is not None
    assert full.refusal.err_code == 10077


def test_mirror_has_sequences_and_times_of_its_origin() -> None:
    origin = StreamSource(name="O")
    run = Run(subjects=(), mirror=origin, duplicate_window=0)
    progress = Progress(origin, is_mirror=True)
    expecting = block({"Nats-Expected-Last-Sequence": "77", "Nats-Msg-Id": "m"})
    for seq, header in ((5, b""), (6, expecting), (9, expecting)):
        msg = Inbound("o.a", "", header, b"%d" % seq)
        planned = run.stream.plan_mirrored(msg, seq, NEW_YEAR + seq, progress)
        assert isinstance(planned, Publish)
        run.apply(planned)
    assert [(seq, record.ts_ns - NEW_YEAR) for seq, record in run.messages().items()] == [
        (5, 5),
        (6, 6),
        (9, 9),
    ]
    # What was expected of the origin, and held there, means nothing here.
    assert run.messages()[6].header == block({"Nats-Msg-Id": "m"})
    state = run.stream.state()
    assert (state.first_seq, state.last_seq, state.num_deleted) == (5, 9, 2)
    again = run.stream.plan_mirrored(Inbound("o.a", "", b"", b""), 9, NEW_YEAR, progress)
    assert again == Answer(is_duplicate=True)
