"""Copies over random lives: deliveries are lost or come twice, copies stop, origins do not answer.

However often that happens, in the end a copy has each message of its origin once, in order; and
flow control is never told of more than is stored.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.copies import MIRROR, SOURCE, Copy
from support.stream_run import NEW

ACTIONS = ["deliver", "deliver", "deliver", "lose", "repeat", "beat", "flow", "wait", "answer"]
ACTIONS += ["silence", "refuse", "stop"]
LIVES = st.lists(st.sampled_from(ACTIONS), max_size=40)
GAPS = st.lists(st.integers(1, 3), min_size=1, max_size=25)
PATIENCE_SECONDS = 300


class Origin:
    """A stream with gaps, and its newest consumer."""

    def __init__(self, copy: Copy, seqs: list[int]) -> None:
        self.copy = copy
        self.seqs = seqs
        self.next = 1
        self.consumer_seq = 0
        self.answered = 0

    def answer(self) -> None:
        """Makes the consumer that was asked for last, if it was not made before."""
        if self.copy.num_asked == self.answered:
            return
        self.answered = self.copy.num_asked
        self.next = self.copy.asked.get("opt_start_seq", self.seqs[0])
        self.next = max(self.next, self.seqs[0])
        self.consumer_seq = 0
        self.copy.answer(delivered=self.next - 1)

    def deliver(self, *, times: int = 1) -> bool:
        """Sends the next message, perhaps not at all; whether there was one."""
        seq = next((each for each in self.seqs if each >= self.next), None)
        if seq is None:
            return False
        self.next = seq + 1
        self.consumer_seq += 1
        for _ in range(times):
            self.copy.deliver(seq, self.consumer_seq, b"%d" % seq)
        return True

    def live(self, action: str) -> None:
        """One thing happens."""
        copy = self.copy
        match action:
            case "deliver":
                self.deliver()
            case "lose":
                self.deliver(times=0)
            case "repeat":
                self.deliver(times=2)
            case "beat":
                copy.beat(self.consumer_seq)
            case "flow":
                copy.ask_flow("fc")
            case "wait":
                copy.pass_time(3)
            case "silence":
                copy.pass_time(45)
            case "answer":
                self.answer()
            case "refuse" if copy.num_asked > self.answered:
                self.answered = copy.num_asked
                copy.refuse()
            case "stop":
                self.answered = 0
                copy.open()

    def finish(self) -> None:
        """From now on everything works."""
        for _ in range(PATIENCE_SECONDS):
            self.answer()
            while self.deliver():
                continue
            self.copy.beat(self.consumer_seq)
            if stored(self.copy) == self.seqs:
                return
            self.copy.pass_time(1)


def stored(copy: Copy) -> list[int]:
    return [int(record.payload) for record in copy.messages.values()]


@pytest.mark.parametrize("fields", [MIRROR, SOURCE, {**SOURCE, **NEW, "max_msgs": 100}])
@settings(max_examples=300, deadline=None)
@given(life=LIVES, gaps=GAPS)
def test_copy_has_each_message_once_and_in_order(
    fields: dict[str, Any], life: list[str], gaps: list[int]
) -> None:
    seqs = [sum(gaps[: n + 1]) for n in range(len(gaps))]
    copy = Copy(**fields)
    origin = Origin(copy, seqs)
    for action in life:
        origin.live(action)
        have = stored(copy)
        assert have == seqs[: len(have)]
        for answer in copy.answers:
            told = int(answer.header.split(b"Nats-Last-Stream: ")[1].split()[0])
            assert all(seq in have for seq in seqs if seq <= told)
    origin.finish()
    assert stored(copy) == seqs
    if "mirror" in fields:
        assert list(copy.messages) == seqs
    else:
        assert copy.notes == seqs
