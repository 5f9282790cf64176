"""Answers settle the number they are for, in any order and however the bytes are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.publish_acks import PublishAcks, Window

SID = 3


def answer(number: int, payload: bytes, sid: int = SID) -> bytes:
    return b"MSG _INBOX.me.%d %d %d\r\n%b\r\n" % (number, sid, len(payload), payload)


def stored(number: int) -> bytes:
    return answer(number, b'{"stream":"EV","seq":%d}' % (number + 7))


def made(window: Window) -> PublishAcks:
    intake = PublishAcks(frame_bytes_max=1 << 20, records_max=1, bytes_max=1 << 20)
    intake.answer_to(SID, window)
    return intake


def feed(intake: PublishAcks, data: bytes) -> list[bytes]:
    """Give it all; the payloads of what it did not settle itself."""
    told = []
    space = intake.space()
    space[: len(data)] = data
    intake.filled(len(data))
    while (heard := intake.next()) is not None:
        told.append(heard.payload)
    return told


@given(order=st.permutations(range(12)), cut=st.integers(1, 40))
def test_every_answer_counts_once_in_any_order_and_chunking(order: list[int], cut: int) -> None:
    window = Window(16, "EV")
    window.open(12)
    intake = made(window)
    data = b"".join(stored(number) for number in order)
    for at in range(0, len(data), cut):
        assert feed(intake, data[at : at + cut]) == []
    assert (window.oldest, window.next, window.answered) == (12, 12, 12)


@given(st.lists(st.integers(0, 9), max_size=30))
def test_oldest_is_the_first_that_waits(settled: list[int]) -> None:
    window = Window(10)
    window.open(10)
    waiting = set(range(10))
    for number in settled:
        assert window.record_answer(number) is (number in waiting)
        waiting.discard(number)
        assert window.oldest == min(waiting, default=10)


def test_slots_are_used_again_when_their_answers_came() -> None:
    window = Window(4)
    for turn in range(5):
        assert window.open(4) == 4 * turn
        with pytest.raises(ValueError, match="room"):
            window.open(1)
        for number in range(4 * turn, 4 * turn + 4):
            window.record_answer(number)


def test_duplicate_is_answer_and_is_counted() -> None:
    window = Window(4, "EV")
    window.open(2)
    said = answer(1, b'{"stream":"EV","seq":2,"duplicate": true}') + stored(0)
    assert feed(made(window), said) == []
    assert (window.oldest, window.duplicates) == (2, 1)


@pytest.mark.parametrize(
    "payload",
    [
        b'{"error":{"code":400,"err_code":10071},"stream":"EV","seq":0}',
        b'{"stream":"EV2","seq":1}',
        b'{"stream":"OTHER","seq":1}',
        b"",
        b'{"stream":"EV",',
    ],
)
def test_unusual_reply_is_reported_and_acks_nothing(payload: bytes) -> None:
    window = Window(4, "EV")
    window.open(1)
    assert feed(made(window), answer(0, payload)) == [payload]
    assert window.is_waiting(0)


def test_answer_with_headers_is_reported() -> None:
    window = Window(4, "EV")
    window.open(1)
    head = b"NATS/1.0 503\r\n\r\n"
    said = b"HMSG _INBOX.me.0 %d %d %d\r\n%b\r\n" % (SID, len(head), len(head), head)
    assert feed(made(window), said) == [b""]
    assert window.is_waiting(0)


def test_unexpected_replies_change_nothing() -> None:
    window = Window(4, "EV")
    window.open(1)
    assert feed(made(window), stored(3) + stored(99) + stored(0) + stored(0)) == []
    assert (window.oldest, window.answered) == (1, 1)


def test_other_subscriptions_are_reported_as_ever() -> None:
    window = Window(4)
    window.open(1)
    assert feed(made(window), answer(0, b'{"stream":"EV","seq":1}', sid=9)) != []
    assert window.is_waiting(0)


@pytest.mark.parametrize("slots", [0, -1, 1 << 30])
def test_window_has_bounded_number_of_slots(slots: int) -> None:
    with pytest.raises(ValueError, match="slots"):
        Window(slots)


def test_duplicates_are_listed_with_sequence_of_their_original() -> None:
    window = Window(1024, "EV")
    window.open(1000)
    data = b"".join(
        answer(number, b'{"stream":"EV","domain":"d","seq":%d,"duplicate":true}' % (number + 7))
        if number % 2
        else stored(number)
        for number in range(1000)
    )
    assert feed(made(window), data) == []
    assert window.take_repeats() == [(number, number + 7) for number in range(1, 1000, 2)]
    assert (window.duplicates, window.take_repeats()) == (500, [])


def test_stored_sequences_are_listed_as_runs_if_requested() -> None:
    for lists, expected in ((True, [(1, 300), (302, 302), (9, 9)]), (False, [])):
        window = Window(1024, "EV", lists)
        window.open(303)
        seqs = [*range(1, 301), 302, 9]
        data = b"".join(
            answer(number, b'{"stream":"EV","seq":%d}' % seq) for number, seq in enumerate(seqs)
        )
        data += answer(302, b'{"stream":"EV","seq":4,"duplicate":true}')
        assert feed(made(window), data) == []
        assert window.take_stored() == expected
        assert window.take_stored() == []


def test_many_runs_of_stored_sequences_are_listed() -> None:
    window = Window(4096, "EV", True)
    window.open(4000)
    data = b"".join(answer(n, b'{"stream":"EV","seq":%d}' % (2 * n + 1)) for n in range(4000))
    assert feed(made(window), data) == []
    assert window.take_stored() == [(2 * n + 1, 2 * n + 1) for n in range(4000)]
