"""What the API asks of a stream: purging, deleting, another configuration, its totals."""

from __future__ import annotations

import pytest

from penstock.api import refusals
from penstock.api.request_bodies import PurgeRequest
from penstock.api.stream_config import Retention, Storage, StreamState, SubjectTransform
from penstock.jetstream.streams.entries import Purge, Remove
from support.stream_run import NEW_YEAR, SECOND, Run, ack, config


def filled(subjects: str = "s.a s.b s.a s.b s.a", **fields: object) -> Run:
    run = Run(**fields)
    for subject in subjects.split():
        run.publish(subject)
    return run


@pytest.mark.parametrize(
    ("request_", "left", "first"),
    [
        (PurgeRequest(), [], 6),
        (PurgeRequest(filter="s.a"), [2, 4], 2),
        (PurgeRequest(seq=3), [3, 4, 5], 3),
        (PurgeRequest(seq=1), [1, 2, 3, 4, 5], 1),
        (PurgeRequest(seq=1, filter="s.a"), [1, 2, 3, 4, 5], 1),
        (PurgeRequest(seq=4, filter="s.b"), [1, 3, 4, 5], 1),
        (PurgeRequest(keep=2), [4, 5], 4),
        (PurgeRequest(keep=1, filter="s.b"), [1, 3, 4, 5], 1),
        (PurgeRequest(keep=50), [1, 2, 3, 4, 5], 1),
    ],
)
def test_purge_takes_out_what_it_reports(
    request_: PurgeRequest, left: list[int], first: int
) -> None:
    run = filled()
    planned = run.stream.plan_purge(request_, NEW_YEAR)
    assert isinstance(planned, Purge)
    applied = run.apply(planned)
    removed = applied.removed.msgs
    while applied.rest:
        applied = run.apply(applied.rest[0])
        removed += applied.removed.msgs
    assert removed == 5 - len(left)
    assert run.seqs() == left
    assert run.store.state().first_seq == first
    assert run.publish("s.a") == ack(6)


def test_purge_beyond_the_end_moves_stream_on() -> None:
    run = filled()
    run.apply(run.stream.plan_purge(PurgeRequest(seq=20), NEW_YEAR))  # type: ignore[arg-type]
    assert run.publish("s.a") == ack(20)


def test_purges_and_deletions_are_refused_where_they_are_denied() -> None:
    purge = PurgeRequest()
    denied = filled(deny_purge=True, deny_delete=True)
    assert denied.stream.plan_purge(purge, NEW_YEAR) == refusals.STREAM_PURGE_FAILED(
        err="stream purge not permitted"
    )
    assert denied.stream.plan_remove(1, NEW_YEAR) == refusals.STREAM_MSG_DELETE_FAILED(
        err="message delete not permitted"
    )
    sealed = Run(sealed=True)
    assert sealed.stream.plan_purge(purge, NEW_YEAR) == refusals.STREAM_SEALED
    assert sealed.stream.plan_remove(1, NEW_YEAR) == refusals.STREAM_SEALED
    both = PurgeRequest(seq=2, keep=2)
    assert sealed.stream.plan_purge(both, NEW_YEAR) == refusals.BAD_REQUEST


@pytest.mark.parametrize("erase", [True, False])
def test_message_is_deleted_once(erase: bool) -> None:
    run = filled()
    planned = run.stream.plan_remove(3, NEW_YEAR, erase=erase)
    assert planned == Remove(NEW_YEAR, (3,), erase)
    assert run.apply(planned).removed.seqs == ((3, 3),)
    assert run.apply(planned).removed.msgs == 0
    assert run.seqs() == [1, 2, 4, 5]
    assert run.stream.plan_remove(3, NEW_YEAR) == refusals.SEQUENCE_NOT_FOUND(seq=3)


def test_file_stream_has_its_own_words_for_what_it_does_not_have() -> None:
    run = filled(storage=Storage.FILE)
    run.apply(run.stream.plan_purge(PurgeRequest(seq=2), NEW_YEAR))  # type: ignore[arg-type]
    missing = {seq: run.stream.plan_remove(seq, NEW_YEAR) for seq in (1, 9)}
    assert missing == {
        1: refusals.STREAM_MSG_DELETE_FAILED(err="no message found"),
        9: refusals.STREAM_MSG_DELETE_FAILED(err="stream store EOF"),
    }


# -- another configuration


def test_another_configuration_counts_from_the_next_message_on() -> None:
    run = filled("s.a s.b s.c")
    cfg = config(
        max_msgs=2,
        max_msg_size=5,
        no_ack=True,
        subject_transform=SubjectTransform(src="s.a", dest="s.z"),
        duplicate_window=SECOND,
    )
    applied = run.apply(run.stream.plan_update(cfg, NEW_YEAR))
    assert applied.removed.seqs == ((1, 1),)
    assert run.stream.cfg == cfg
    assert run.publish("s.a", b"x") == []
    assert run.messages()[4].subject == "s.z"
    assert run.refusal("s.a", b"xxxxxx") == refusals.STREAM_MESSAGE_EXCEEDS_MAXIMUM
    assert run.seqs() == [3, 4]


def test_interest_may_start_to_matter() -> None:
    run = filled("s.a")
    run.apply(run.stream.plan_update(config(retention=Retention.INTEREST), NEW_YEAR))
    assert run.publish("s.a") == ack(2)
    assert run.seqs() == [1]


# -- totals


def test_stream_that_never_had_message_has_no_first_sequence() -> None:
    assert Run().stream.state() == StreamState()
    started = Run(first_seq=10).stream.state()
    assert (started.first_seq, started.last_seq) == (10, 9)


def test_totals_report_what_is_there_and_what_is_missing() -> None:
    run = filled()
    run.store.remove(2)
    state = run.stream.state(consumers=3)
    assert state == StreamState(
        messages=4,
        bytes=4 * 19,
        first_seq=1,
        first_ts=NEW_YEAR,
        last_seq=5,
        last_ts=NEW_YEAR,
        num_subjects=2,
        num_deleted=1,
        consumer_count=3,
    )


def test_emptied_stream_continues_after_its_last_message() -> None:
    run = filled()
    run.apply(run.stream.plan_purge(PurgeRequest(), NEW_YEAR))  # type: ignore[arg-type]
    state = run.stream.state()
    assert (state.first_seq, state.first_ts, state.last_seq, state.last_ts) == (6, 0, 5, NEW_YEAR)
