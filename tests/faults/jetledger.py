"""What clients of a JetStream server were promised, over all its lives; kept outside of it.

The load records every attempt before it is made and every reply when it came. A
process that dies leaves attempts without an answer: those may have happened or not. Everything
else may not. `wrong` collects what the load sees that must not be, and what the judges find.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from enum import Enum


class Existence(Enum):
    """Of something that requests make and delete."""

    THERE = "there"
    ABSENT = "gone"
    UNKNOWN = "asked for, not answered"


class Acks:
    """How one consumer's deliveries were acknowledged."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        """A caller waited for the reply, and it came."""
        self.sent: set[int] = set()
        """In this life, no caller waits for a reply, and nothing that came later is confirmed."""
        self.lasting: set[int] = set()
        """Must not be delivered to anybody, nor be kept for anybody, in any later life."""
        self.tried: set[int] = set()
        """Sent in any way."""
        self.covered: set[int] = set()
        """Sent before one that was confirmed: the acks of a consumer are written in order."""
        self.under_way: set[int] = set()
        """Deliveries, by consumer sequence, that were sent before they were acknowledged."""

    def confirm(self, seq: int) -> None:
        self.tried.add(seq)
        self.confirmed.add(seq)
        self.covered |= self.sent
        self.sent.clear()

    def end_life(self) -> None:
        """What was sent last may be lost, and come again in any later life."""
        self.lasting |= self.confirmed | self.covered
        self.sent.clear()
        self.under_way.clear()


class Ledger:
    """All that was asked, and all that was answered."""

    def __init__(self) -> None:
        self.life = 0
        self.answers = 0
        """What was promised in this life, of any kind."""
        self.is_dying = False
        self.wrong: list[str] = []
        self.tried: dict[str, set[bytes]] = defaultdict(set)
        self.stored: dict[str, dict[int, bytes]] = defaultdict(dict)
        self.purged_below: dict[str, int] = defaultdict(int)
        self.purge_tried_below: dict[str, int] = defaultdict(int)
        self.acks: dict[str, Acks] = defaultdict(Acks)
        self.existence: dict[str, Existence] = {}
        self.texts: dict[str, tuple[str, str]] = {}
        """By stream: the description it certainly had last, and the one that was asked for."""
        self.values: dict[str, tuple[bytes, bytes]] = {}
        """By key: the value that was certainly put last, and the one that was being put."""
        self._numbers = itertools.count(1)

    def fresh(self, role: str, padding: int = 0) -> bytes:
        """A payload that is sent only here."""
        return b"%s-%d-%d" % (role.encode(), self.life, next(self._numbers)) + b"." * padding

    def note_stored(self, stream: str, seq: int, payload: bytes) -> None:
        """A publish was acknowledged, or a message was delivered."""
        known = self.stored[stream].setdefault(seq, payload)
        if known != payload:
            self.wrong.append(f"{stream} {seq} is {payload[:40]!r}, was {known[:40]!r}")
        if payload not in self.tried[stream]:
            self.wrong.append(f"{stream} {seq} holds what was never published: {payload[:40]!r}")
        self.answers += 1

    def note_delivered(self, consumer: str, seq: int) -> None:
        """Something was delivered that perhaps must not be."""
        acks = self.acks[consumer]
        if seq in acks.confirmed:
            self.wrong.append(f"{consumer}: {seq} was acknowledged, confirmed and comes again")
        elif seq in acks.lasting:
            self.wrong.append(f"{consumer}: {seq} was acknowledged before another and comes again")

    def begin_life(self) -> None:
        self.life += 1
        self.answers = 0
        self.is_dying = False

    def end_life(self) -> None:
        """It is about to be killed."""
        self.is_dying = True

    def note_death(self) -> None:
        """Nothing is added any more."""
        for acks in self.acks.values():
            acks.end_life()

    # -- after a death

    def judge_stream(self, stream: str, found: dict[int, bytes], acks: Acks | None = None) -> None:
        """What is left of a stream; `acks` of those who take messages out by acknowledging."""
        promised = self.stored[stream]
        for seq, payload in promised.items():
            if seq in found:
                if found[seq] != payload:
                    self.wrong.append(f"{stream} {seq} has become {found[seq][:40]!r}")
            elif not self._may_be_gone(stream, seq, acks):
                self.wrong.append(f"{stream} {seq} ({payload[:40]!r}) was acknowledged and is lost")
        for seq, payload in found.items():
            self._judge_found(stream, seq, payload, acks)

    def _may_be_gone(self, stream: str, seq: int, acks: Acks | None) -> bool:
        below = max(self.purged_below[stream], self.purge_tried_below[stream])
        return seq < below or (acks is not None and seq in acks.tried)

    def _judge_found(self, stream: str, seq: int, payload: bytes, acks: Acks | None) -> None:
        if payload not in self.tried[stream]:
            self.wrong.append(f"{stream} {seq} holds what was never published: {payload[:40]!r}")
        if seq < self.purged_below[stream]:
            self.wrong.append(f"{stream} {seq} was purged and is there")
        if acks is not None and seq in acks.lasting:
            self.wrong.append(f"{stream} {seq} was acknowledged and is there")

    def judge_existence(self, found: set[str]) -> None:
        """Which of the things that come and go are there; unknowns are known from now on."""
        for name, existence in list(self.existence.items()):
            is_there = name in found
            if existence is not Existence.UNKNOWN and is_there != (existence is Existence.THERE):
                self.wrong.append(f"{name} should be {existence.value}")
            self.existence[name] = Existence.THERE if is_there else Existence.ABSENT

    def judge_text(self, stream: str, found: str) -> None:
        if found not in self.texts.get(stream, (found,)):
            self.wrong.append(f"{stream} is described as {found!r}, not as {self.texts[stream]}")
        self.texts[stream] = (found, found)

    def judge_value(self, key: str, found: bytes) -> None:
        if found not in self.values[key]:
            self.wrong.append(f"key {key} is {found!r}, not one of {self.values[key]}")
        self.values[key] = (found, found)
