r"""Transcripts: readable conversations with a server, read from text and played on sockets.

A file holds cases; a case is a law and a conversation::

    @server                      configuration, for the file or for one case
      max_payload: 16
    @end
    == a message reaches its subscriber
    @connect A B {"headers":true}   open, send a quiet CONNECT, wait until it is processed
    A> SUB foo 1                 send a line (CRLF is added); >> sends raw bytes, no line end
    B> PUB foo 2\r\nhi           escapes \r \n \t \\ \xHH; $(x*9) repeats; ${name} is a capture
    A< MSG foo 1 2               the next line, exactly; /regex/ matches, its groups capture
    A< hi
    A<* MSG foo 2 2\r\nhi        consecutive <* items may come in any order
    A< INFO {"ldm":true}         JSON subset: null means absent, "*" present
    A! quiet                     PING is answered by PONG and nothing else
    A! closed                    the server closes and says nothing more

A client opens when first named; its greeting is skipped unless the case starts by expecting it.
``@whole`` keeps a case from being replayed in pieces, ``@fresh`` gives it a server of its own,
``@flags`` adds command line flags. Each case ends with its subscriptions removed for certain.
"""

from __future__ import annotations

import itertools
import json
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from support.wire import Wire, WireError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

STEP = re.compile(r"([A-Z])(>>|>|<\*|<|!)(?: (.*))?")
REPEAT = re.compile(r"\$\((.+?)\*(\d+)\)")
CAPTURE = re.compile(r"\$\{(\w+)\}")
ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|([rnt\\]))")
ESCAPED = {"r": b"\r", "n": b"\n", "t": b"\t", "\\": b"\\"}
SUBSCRIBED = re.compile(rb"^\s*sub\s[^\r\n]*?([^\s]+)[ \t]*\r?$", re.IGNORECASE | re.MULTILINE)
PIECE_BYTES_MAX = 9


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a conversation."""

    where: str
    client: str
    act: str
    text: str


@dataclass(slots=True)
class Case:
    """A law and the conversation that shows it."""

    source: str
    law: str
    config: str = ""
    flags: tuple[str, ...] = ()
    fresh: bool = False
    whole: bool = False
    steps: list[Step] = field(default_factory=list)


def cut_whole(data: bytes) -> Iterable[bytes]:
    return [data]


def cut_bytes(data: bytes) -> Iterable[bytes]:
    return (data[i : i + 1] for i in range(len(data)))


def cut_randomly(data: bytes) -> Iterable[bytes]:
    """Pieces of random length, the same in every run."""
    dice = random.Random(data)
    at = 0
    while at < len(data):
        size = dice.randint(1, PIECE_BYTES_MAX)
        yield data[at : at + size]
        at += size


# -- reading -------------------------------------------------------------------------------


def read_cases(path: Path) -> list[Case]:
    """The cases of one file."""
    shared = Case(path.stem, "")
    cases: list[Case] = []
    lines = iter(enumerate(path.read_text().splitlines(), start=1))
    for number, line in lines:
        if line.startswith("== "):
            cases.append(_heir(shared, line[3:].strip()))
        elif line.startswith("@"):
            _read_directive(cases[-1] if cases else shared, line, lines, f"{path.name}:{number}")
        elif line and not line.startswith("#"):
            cases[-1].steps.append(_read_step(line, f"{path.name}:{number}"))
    laws = [case.law for case in cases]
    assert len(laws) == len(set(laws)), f"{path.name}: a law stands twice"
    return cases


def _heir(shared: Case, law: str) -> Case:
    return Case(shared.source, law, shared.config, shared.flags, shared.fresh, shared.whole)


def _read_step(line: str, where: str) -> Step:
    matched = STEP.fullmatch(line)
    assert matched, f"{where}: not a step: {line!r}"
    return Step(where, matched[1], matched[2], matched[3] or "")


def _read_directive(case: Case, line: str, lines: Iterator[tuple[int, str]], where: str) -> None:
    word, _, rest = line[1:].partition(" ")
    if word == "server":
        block = itertools.takewhile(lambda item: item[1].strip() != "@end", lines)
        case.config = "\n".join(text for _, text in block) + "\n"
    elif word == "flags":
        case.flags = tuple(rest.split())
    elif word == "fresh":
        case.fresh = True
    elif word == "whole":
        case.whole = True
    elif word == "connect":
        case.steps += _connect_steps(rest, where)
    else:
        raise AssertionError(f"{where}: unknown directive @{word}")


def _connect_steps(rest: str, where: str) -> list[Step]:
    names, brace, options = rest.partition("{")
    settings = {"verbose": False, "pedantic": False, **json.loads((brace + options) or "{}")}
    connect = f"CONNECT {json.dumps(settings)}"
    return [
        Step(where, name, act, text)
        for name in names.split()
        for act, text in ((">", connect), ("!", "quiet"))
    ]


# -- playing -------------------------------------------------------------------------------


class Player:
    """Plays one case against one address."""

    def __init__(
        self,
        address: tuple[str, int],
        cut: Callable[[bytes], Iterable[bytes]] = cut_whole,
        *,
        burst: bool = False,
    ) -> None:
        self._address = address
        self._cut = cut
        self._burst = burst
        self._wires: dict[str, Wire] = {}
        self._captured: dict[str, str] = {}
        self._sids: dict[str, set[bytes]] = {}
        self._held: dict[str, bytes] = {}

    def play(self, case: Case) -> None:
        try:
            for step_group in _grouped(case.steps):
                self._play_group(step_group)
            self._flush()
            self._retire()
        finally:
            for wire in self._wires.values():
                wire.close()

    def _play_group(self, steps: list[Step]) -> None:
        first = steps[0]
        wire = self._wire(first)
        try:
            if first.act in (">", ">>"):
                self._send(first)
                return
            self._flush()
            if first.act == "<*":
                self._expect_in_any_order(wire, steps)
            elif first.act == "<":
                self._expect(wire, first.text)
            else:
                self._act(wire, first)
        except WireError as failure:
            raise WireError(f"{first.where}: {failure}") from None

    def _wire(self, step: Step) -> Wire:
        if step.client not in self._wires:
            greeted = step.act == "<" or step.text == "greeting"
            self._wires[step.client] = Wire(self._address, name=step.client, greeting=not greeted)
        return self._wires[step.client]

    def _send(self, step: Step) -> None:
        data = self._bytes(step.text) + (b"\r\n" if step.act == ">" else b"")
        self._sids.setdefault(step.client, set()).update(SUBSCRIBED.findall(data))
        # In burst mode all that a client says before anybody listens leaves in one piece.
        if self._burst and set(self._held) <= {step.client}:
            self._held[step.client] = self._held.get(step.client, b"") + data
            return
        self._flush()
        self._wires[step.client].send(data, self._cut(data))

    def _flush(self) -> None:
        for client, data in self._held.items():
            self._wires[client].send(data)
        self._held.clear()

    def _act(self, wire: Wire, step: Step) -> None:
        acts: dict[str, Callable[[], None]] = {
            "quiet": wire.expect_quiet,
            "closed": wire.expect_closed,
            "drain": wire.drain,
            "close": wire.close,
            "open": lambda: None,
        }
        acts[step.text]()

    def _bytes(self, text: str) -> bytes:
        filled = CAPTURE.sub(lambda m: self._captured[m[1]], text)
        repeated = REPEAT.sub(lambda m: m[1] * int(m[2]), filled)
        return _unescape(repeated)

    def _text(self, text: str) -> str:
        return self._bytes(text).decode(errors="surrogateescape")

    def _expect(self, wire: Wire, text: str) -> None:
        if text.startswith("INFO {"):
            _match_fields(wire, json.loads(text[5:]))
        elif len(text) > 1 and text.startswith("/") and text.endswith("/"):
            matched = wire.expect(re.compile(CAPTURE.sub(self._quoted_capture, text[1:-1])))
            assert matched is not None
            self._captured.update(matched.groupdict())
        else:
            wire.expect(self._text(text))

    def _quoted_capture(self, matched: re.Match[str]) -> str:
        return re.escape(self._captured[matched[1]])

    def _expect_in_any_order(self, wire: Wire, steps: list[Step]) -> None:
        wanted = sorted(self._text(step.text) for step in steps)
        height = wanted[0].count("\r\n") + 1
        got = sorted("\r\n".join(wire.line() for _ in range(height)) for _ in steps)
        if got != wanted:
            raise WireError(f"expected in any order {wanted}\n     got {got}")

    def _retire(self) -> None:
        """Leave nothing behind on a shared server: the next case uses the same names."""
        for client, wire in self._wires.items():
            if wire.closed:
                continue
            for sid in self._sids.get(client, ()):
                wire.send(b"\r\nUNSUB " + sid + b"\r\n")
            wire.drain()


def _grouped(steps: list[Step]) -> Iterator[list[Step]]:
    """Single steps, but items that may come in any order stay together."""
    for (client, act), run in itertools.groupby(steps, key=lambda step: (step.client, step.act)):
        if act == "<*" and client:
            yield list(run)
        else:
            yield from ([step] for step in run)


def _unescape(text: str) -> bytes:
    out = bytearray()
    at = 0
    for found in ESCAPE.finditer(text):
        out += text[at : found.start()].encode(errors="surrogateescape")
        out += bytes.fromhex(found[1]) if found[1] else ESCAPED[found[2]]
        at = found.end()
    return bytes(out + text[at:].encode(errors="surrogateescape"))


def _match_fields(wire: Wire, wanted: dict[str, object]) -> None:
    got = wire.expect_info()
    for name, value in wanted.items():
        if value is None:
            fits = name not in got
        elif value == "*":
            fits = name in got
        else:
            fits = got.get(name) == value
        if not fits:
            raise WireError(f"INFO field {name!r}: expected {value!r}, got {got.get(name)!r}")
