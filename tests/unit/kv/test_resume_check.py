"""The decision before a resume, case by case."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.bulk.bulk_requests import StreamSummary
from penstock.kv.errors import CursorExpired, LogReset
from penstock.kv.kv_types import LogInfo
from penstock.kv.resume_check import check_resume, is_same_log, log_info

HERE = "KV_b@1"


def info(first: int, last: int, loss_floor: int | None = None) -> LogInfo:
    return LogInfo(
        identity=HERE, first_seq=first, last_seq=last, evicts_current=False, loss_floor=loss_floor
    )


@pytest.mark.parametrize(
    ("first", "last", "revision"),
    [(1, 9, 0), (1, 9, 9), (5, 9, 4), (5, 9, 6), (10, 9, 9), (0, 0, 0)],
)
def test_log_that_holds_the_next_record_can_be_resumed(
    first: int, last: int, revision: int
) -> None:
    check_resume(info(first, last), revision, identity=HERE, bucket="b")
    check_resume(info(first, last), revision, identity=None, bucket="b")


@pytest.mark.parametrize(("first", "last", "revision"), [(2, 9, 0), (5, 9, 3), (10, 9, 8)])
def test_log_that_begins_later_has_expired(first: int, last: int, revision: int) -> None:
    with pytest.raises(CursorExpired) as expired:
        check_resume(info(first, last), revision, identity=HERE, bucket="b")
    assert (expired.value.first_seq, expired.value.cursor.revision) == (first, revision)


def test_cursor_beyond_the_end_or_of_another_log_is_reset() -> None:
    with pytest.raises(LogReset):
        check_resume(info(1, 9), 10, identity=HERE, bucket="b")
    with pytest.raises(LogReset) as reset:
        check_resume(info(1, 9), 3, identity="KV_b@0", bucket="b")
    assert (reset.value.old_identity, reset.value.new_identity) == ("KV_b@0", HERE)


def test_server_that_reports_its_losses_is_believed() -> None:
    check_resume(info(8, 9, loss_floor=0), 2, identity=HERE, bucket="b")
    check_resume(info(3, 9, loss_floor=2), 2, identity=HERE, bucket="b")
    with pytest.raises(CursorExpired, match="lost 3"):
        check_resume(info(1, 9, loss_floor=3), 2, identity=HERE, bucket="b")


def test_purge_beyond_cursor_is_seen_though_the_last_loss_was_before_it() -> None:
    # 3 to 7 were overwritten, 2 was not: a fold that knows 2 must not keep it.
    with pytest.raises(CursorExpired, match="begins at 8"):
        check_resume(info(8, 9, loss_floor=2), 2, identity=HERE, bucket="b")


@pytest.mark.parametrize(
    ("config", "evicts"),
    [
        ({}, False),
        ({"max_age": 1}, True),
        ({"allow_msg_ttl": True}, True),
        ({"discard": "old", "max_bytes": 5}, True),
        ({"discard": "old", "max_msgs": 5}, True),
        ({"discard": "old", "max_bytes": -1, "max_msgs": -1}, False),
        ({"discard": "new", "max_bytes": 5}, False),
    ],
)
def test_bucket_drops_current_values_by_age_ttl_or_when_full(
    config: dict[str, object], evicts: bool
) -> None:
    told = log_info(StreamSummary("KV_b", 1, 3, 9, 7, {"max_msgs_per_subject": 1, **config}))
    assert told == LogInfo(identity=HERE, first_seq=3, last_seq=9, evicts_current=evicts, records=7)


# -- what only our server reports


def described(penstock: dict[str, Any] | None) -> LogInfo:
    return log_info(StreamSummary("KV_b", 77, 4, 9, 6, {}, penstock=penstock))


def test_incarnation_and_losses_are_read_from_servers_object() -> None:
    told = described({"incarnation": "ab", "loss_floor": 5, "of a later version": 1})
    assert (told.identity, told.loss_floor) == ("KV_b@77+ab", 5)
    silent = described(None)
    assert (silent.identity, silent.loss_floor) == ("KV_b@77", None)


@pytest.mark.parametrize(
    "penstock",
    [{}, {"incarnation": "ab"}, {"loss_floor": 1}, {"incarnation": "ab", "loss_floor": -1}],
)
def test_incomplete_object_counts_as_none(penstock: dict[str, Any]) -> None:
    silent = described(penstock)
    assert (silent.identity, silent.loss_floor) == ("KV_b@77", None)


@pytest.mark.parametrize(
    ("held", "now", "same"),
    [
        ("KV_b@1", "KV_b@1", True),
        ("KV_b@1+ab", "KV_b@1+ab", True),
        ("KV_b@1", "KV_b@1+ab", True),
        ("KV_b@1+ab", "KV_b@1", False),
        ("KV_b@1+ab", "KV_b@1+cd", False),
        ("KV_b@1", "KV_b@2+ab", False),
        ("KV_b", "KV_b+c@1", False),
    ],
)
def test_cursor_of_before_incarnations_goes_by_name_and_time(
    held: str, now: str, same: bool
) -> None:
    assert is_same_log(held, now) is same
