"""STREAM.MSG.GET: one message, chosen by sequence, subject or time."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.api.refusals import BAD_REQUEST, NO_MESSAGE_FOUND
from penstock.api.request_bodies import MsgGetRequest
from penstock.api.responses import StoredMessage
from penstock.jetstream.account.message_get import get_message
from penstock.store.contract import Cold
from penstock.store.memstore import MemStore
from support.forgetful_store import START_NS, STEP_NS, ForgetfulStore, filled

LATER = START_NS + 99 * STEP_NS


@pytest.mark.parametrize(
    ("request_", "seq"),
    [
        ({"seq": 1}, 1),
        ({"seq": 3}, None),
        ({"seq": 9}, None),
        ({"last_by_subj": "b"}, 4),
        ({"last_by_subj": "*"}, 5),
        ({"last_by_subj": "nope"}, None),
        ({"next_by_subj": "b"}, 2),
        ({"next_by_subj": "b", "seq": 3}, 4),
        ({"next_by_subj": "b", "seq": 5}, None),
        ({"next_by_subj": ">", "start_time": START_NS + 3 * STEP_NS}, 4),
        ({"start_time": 0}, 1),
        ({"start_time": START_NS + 4 * STEP_NS}, 4),
        ({"start_time": START_NS + 4 * STEP_NS + 1}, 5),
        ({"start_time": LATER}, None),
    ],
)
def test_message_is_chosen_by_sequence_subject_or_time(
    request_: dict[str, Any], seq: int | None
) -> None:
    found = get_message(filled("a", "b", "", "b", "c"), MsgGetRequest(**request_))
    if seq is None:
        assert found == NO_MESSAGE_FOUND
    else:
        assert isinstance(found, StoredMessage)
        assert (found.seq, found.data) == (seq, b"m%d" % seq)


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"no_hdr": True},
        {"seq": 1, "last_by_subj": "a"},
        {"seq": 1, "start_time": 0},
        {"last_by_subj": "a", "next_by_subj": "a"},
        {"last_by_subj": "a", "start_time": 0},
        {"seq": 1, "batch": 1},
        {"seq": 1, "max_bytes": 1},
        {"multi_last": ("a",)},
    ],
)
def test_request_that_does_not_choose_one_message_is_bad(request_: dict[str, Any]) -> None:
    assert get_message(filled("a"), MsgGetRequest(**request_)) == BAD_REQUEST


def test_message_is_shown_whole_or_without_header() -> None:
    store = MemStore()
    store.append("a", b"NATS/1.0\r\nA: 1\r\n\r\n", b"x", START_NS)
    shown = get_message(store, MsgGetRequest(seq=1))
    assert shown == StoredMessage(
        subject="a", seq=1, hdrs=b"NATS/1.0\r\nA: 1\r\n\r\n", data=b"x", time=START_NS
    )
    bare = get_message(store, MsgGetRequest(seq=1, no_hdr=True))
    assert bare == StoredMessage(subject="a", seq=1, data=b"x", time=START_NS)


def test_message_that_is_not_in_memory_is_asked_for_again() -> None:
    store = ForgetfulStore()
    filled("a", "b", store=store)
    cold = get_message(store, MsgGetRequest(seq=2))
    assert isinstance(cold, Cold)
    store.warm(cold)
    found = get_message(store, MsgGetRequest(seq=2))
    assert isinstance(found, StoredMessage)
    assert found.seq == 2
