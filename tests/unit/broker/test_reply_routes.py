"""Replies that lead back over an account's border."""

from __future__ import annotations

import itertools

import pytest

from penstock.broker import reply_routes
from penstock.broker.import_resolver import ResolvedImports
from penstock.broker.reply_routes import Replies
from penstock.broker.share_values import Export, ResponseKind, ShareKind
from penstock.subjects.pattern_rewrite import Renaming


def joined(
    response: ResponseKind = ResponseKind.SINGLETON, threshold_ns: int = 100
) -> ResolvedImports:
    export = Export(
        kind=ShareKind.SERVICE, subject="a", response=response, threshold_ns=threshold_ns
    )
    return ResolvedImports("TWO", "ONE", Renaming("a", "a"), export, share=False)


@pytest.fixture
def table() -> Replies:
    numbers = itertools.count()
    return Replies("mark", lambda: f"t{next(numbers)}")


def test_reply_reaches_requester(table: Replies) -> None:
    reply = table.open("TWO", "inbox", joined(), 0)
    assert (reply, table.pattern) == ("_R_.mark.t0", "_R_.mark.>")
    awaited = table.get(reply)
    assert awaited is not None
    assert (awaited.account, awaited.subject) == ("TWO", "inbox")
    assert table.get("_R_.mark.other") is None


def test_single_answer_ends_it(table: Replies) -> None:
    reply = table.open("TWO", "inbox", joined(), 0)
    table.answered(reply, is_last=False, now_ns=1)
    assert table.get(reply) is None


@pytest.mark.parametrize("response", [ResponseKind.STREAM, ResponseKind.CHUNKED])
def test_many_answers_continue_until_the_last(table: Replies, response: ResponseKind) -> None:
    reply = table.open("TWO", "inbox", joined(response), 0)
    table.answered(reply, is_last=False, now_ns=1)
    assert table.get(reply) is not None
    table.answered(reply, is_last=True, now_ns=2)
    assert table.get(reply) is None
    table.answered(reply, is_last=True, now_ns=3)


def test_slow_transfers_time_out_and_replies_extend_deadline(table: Replies) -> None:
    late = table.open("TWO", "late", joined(), 0)
    lively = table.open("TWO", "lively", joined(ResponseKind.STREAM), 0)
    table.answered(lively, is_last=False, now_ns=60)
    assert table.expire(100) == 160
    assert table.get(late) is None
    assert table.get(lively) is not None
    assert table.expire(160) is None


def test_oldest_goes_when_too_many_are_open(
    table: Replies, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reply_routes, "OPEN_MAX", 2)
    opened = [table.open("TWO", f"inbox{n}", joined(), n) for n in range(3)]
    assert [table.get(reply) is not None for reply in opened] == [False, True, True]
    assert len(table) == 2
