"""Random messages for streams, with every header that means something to JetStream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from . import configurations as cfg
from . import json_values as js

if TYPE_CHECKING:
    import random

SIZES: Final = (0, 1, 10, 100, 100, 1000)
LARGE: Final = (20_000, 300_000)
BATCHES: Final = tuple(f"batch{number}" for number in range(4))


class Publish(NamedTuple):
    """A message, and whether a stream or the server must answer it."""

    subject: str
    payload: bytes
    header: bytes = b""
    is_answered: bool = True
    reply: str = ""


class Publishes:
    """Draws messages for one stream after the other."""

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self._batch_seqs = dict.fromkeys(BATCHES, 0)

    def draw(self, stream: str) -> Publish:
        dice = self.dice
        subject = cfg.subject_in(stream, dice)
        if dice.random() < 0.6:
            return Publish(subject, self._payload())
        if dice.random() < 0.05:
            return self._fast_batch(subject)
        lines = self._batch(subject) if dice.random() < 0.15 else self._lines(stream)
        payload = b"" if b"Nats-Incr" in lines and dice.random() < 0.9 else self._payload()
        # Parts of a batch get their ack when the batch ends, or none.
        is_answered = b"Nats-Batch" not in lines
        return Publish(subject, payload, b"NATS/1.0\r\n" + lines + b"\r\n", is_answered)

    def _payload(self) -> bytes:
        dice = self.dice
        size = dice.choice(LARGE) if dice.random() < 0.002 else dice.choice(SIZES)
        return dice.randbytes(size) if dice.random() < 0.5 else b"x" * size

    def _number(self) -> str:
        dice = self.dice
        if dice.random() < 0.7:
            return str(dice.choice((0, 1, 2, 3, 10, 50)))
        return str(dice.choice((*js.NUMBERS, "x", "", "+5", "007", "-0", "1_000")))

    def _lines(self, stream: str) -> bytes:
        dice = self.dice
        options = {
            "Nats-Msg-Id": dice.choice(("1", "2", "3", "", "x" * 3000, "ü", str(dice.random()))),
            "Nats-Expected-Stream": dice.choice((stream, stream, "other", "")),
            "Nats-Expected-Last-Sequence": self._number(),
            "Nats-Expected-Last-Subject-Sequence": self._number(),
            "Nats-Expected-Last-Subject-Sequence-Subject": cfg.pattern_in(stream, dice),
            "Nats-Expected-Last-Msg-Id": dice.choice(("1", "2", "")),
            "Nats-Rollup": dice.choice(("sub", "all", "ALL", "x", "")),
            "Nats-TTL": dice.choice(
                ("1", "1s", "2s", "never", "0", "-1", "500ms", "9" * 30, "1h", "x")
            ),
            "Nats-Incr": dice.choice(("1", "+1", "-5", "9" * 400, "x", "", "1.5", "0")),
            "Nats-Schedule": dice.choice(cfg.SCHEDULES),
            "Nats-Schedule-Target": cfg.subject_in(stream, dice),
            "Nats-Schedule-TTL": dice.choice(("1s", "x", "never")),
            "Nats-Schedule-Source": cfg.subject_in(stream, dice),
            "Nats-Schedule-Time-Zone": dice.choice(
                ("Europe/Berlin", "UTC", "Mars/One", "../x", "")
            ),
            "Nats-Schedule-Rollup": dice.choice(("sub", "all")),
            "Nats-Schedule-Next": dice.choice(("purge", "2030-01-01T00:00:00Z", "x")),
            "Nats-Scheduler": cfg.subject_in(stream, dice),
            "Nats-Stream-Source": dice.choice(("S0 1", "S0 1 > > s0.a abcdefgh", "x")),
            "Nats-Counter-Sources": dice.choice(('{"S0":{"s0.a":"5"}}', "{", "[]")),
            "Nats-Required-Api-Level": self._number(),
            "KV-Operation": dice.choice(("DEL", "PURGE", "PUT", "x")),
            "Nats-Marker-Reason": dice.choice(("MaxAge", "Purge", "Remove")),
            "Own": "value",
        }
        kind = dice.random()
        if kind < 0.25:
            names = ["Nats-Schedule", "Nats-Schedule-Target"]
            names += dice.sample(sorted(options), dice.choice((0, 0, 1, 2)))
        else:
            names = dice.sample(sorted(options), dice.choice((1, 1, 1, 2, 2, 4)))
        blank = dice.choice((": ", ": ", ": ", ":", " : ", ":\t"))
        text = "".join(f"{name}{blank}{options[name]}\r\n" for name in names)
        if dice.random() < 0.01:
            text += dice.choice(("no colon\r\n", ": \r\n", "\x00: x\r\n", "A: b\nC: d\r\n"))
        return text.encode()

    def _batch(self, subject: str) -> bytes:
        """A part of an atomic batch: the next of a run, or one out of order."""
        dice = self.dice
        name = dice.choice(BATCHES)
        self._batch_seqs[name] += 1
        number = str(self._batch_seqs[name])
        lines = {"Nats-Batch-Id": name, "Nats-Batch-Sequence": number}
        if dice.random() < 0.1:
            lines["Nats-Batch-Sequence"] = self._number()
        if dice.random() < 0.05:
            lines["Nats-Batch-Id"] = dice.choice(("", "x" * 65, "ü", "x" * 64))
        if dice.random() < 0.25:
            lines["Nats-Batch-Commit"] = dice.choice(("1", "1", "eob", "0", "x"))
            self._batch_seqs[name] = 0
        extra = {
            "Nats-Msg-Id": "1",
            "Nats-Rollup": "sub",
            "Nats-Expected-Last-Sequence": "0",
            "Nats-TTL": "1s",
        }
        if dice.random() < 0.2:
            key = dice.choice(sorted(extra))
            lines[key] = extra[key]
        return "".join(f"{name}: {value}\r\n" for name, value in lines.items()).encode()

    def _fast_batch(self, subject: str) -> Publish:
        """A part of a fast batch, whose reply subject says which."""
        dice = self.dice
        number = dice.choice((1, 1, 2, 3, self._number()))
        flow, gap, step = (
            dice.choice((1, 10, 0, "x")),
            dice.choice(("ok", "fail", "x")),
            dice.randint(0, 5),
        )
        reply = f"_INBOX.fast.{dice.choice(BATCHES)}.{flow}.{gap}.{number}.{step}.$FI"
        return Publish(subject, self._payload(), b"", False, reply)
