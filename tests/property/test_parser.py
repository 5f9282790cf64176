"""The compiled parser and its naive model say the same of any bytes, however they arrive."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from models import parser as model
from penstock.wire import parser

if TYPE_CHECKING:
    from collections.abc import Sequence

Parsed = tuple[list[tuple[object, ...]], bytes, str | None]

blanks = st.text(" \t", min_size=1, max_size=3)
some_blanks = st.text(" \t", max_size=3)
line_ends = st.sampled_from(["\r\n", "\r\n", "\r\n", "\n", "\r\r\n", " \r\n"])
words = st.text("ab.*>$_1\x00\x7fé\r", min_size=1, max_size=6).filter(
    lambda word: word.strip("\r") == word
)
payloads = st.binary(max_size=40)


@st.composite
def verbs(draw: st.DrawFn, name: str) -> str:
    """Upper, lower or mixed case."""
    return draw(st.sampled_from([name, name.lower(), name.title(), name.swapcase()]))


@st.composite
def publishes(draw: st.DrawFn) -> bytes:
    """PUB and HPUB: mostly right, sometimes with a number or a closing that is wrong."""
    headers = draw(st.booleans())
    body = draw(payloads)
    off = draw(st.sampled_from([0, 0, 0, 0, 1, -1]))
    size = str(max(0, len(body) + off)).zfill(draw(st.sampled_from([0, 0, 3, 9, 10])))
    numbers = [size]
    if headers:
        numbers.insert(0, str(draw(st.integers(0, len(body) + 1))))
    arguments = draw(st.lists(words, min_size=0, max_size=3)) + numbers
    line = draw(verbs("HPUB" if headers else "PUB")) + draw(blanks)
    line += draw(blanks).join(arguments) + draw(line_ends)
    closing = draw(st.sampled_from([b"\r\n", b"\r\n", b"\r\n", b"\n", b"", b"\rx"]))
    return line.encode() + body + closing


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """Every verb without a payload, with any arguments."""
    verb = draw(st.sampled_from(["SUB", "UNSUB", "CONNECT", "INFO", "-ERR", "PING", "PONG", "+OK"]))
    arguments = draw(st.lists(words, max_size=5))
    text = draw(verbs(verb)) + draw(some_blanks) + draw(blanks).join(arguments) + draw(line_ends)
    return text.encode()


@st.composite
def spoilt(draw: st.DrawFn, of: st.SearchStrategy[bytes]) -> bytes:
    """Something valid with a few bytes changed, lost, added or doubled."""
    data = bytearray(draw(of))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        change = draw(st.sampled_from(["drop", "add", "swap", "double"]))
        if change == "drop":
            del data[at : at + 1]
        elif change == "add":
            data[at:at] = draw(st.binary(min_size=1, max_size=2))
        elif change == "swap" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        else:
            data[at:at] = data[at : at + 4]
    return bytes(data)


frames = st.one_of(
    publishes(), lines(), publishes(), lines(), spoilt(st.one_of(publishes(), lines()))
)
streams = st.lists(frames, max_size=6).map(b"".join) | st.binary(max_size=60)
limits = st.builds(
    model.Limits,
    max_control_line=st.sampled_from([4096, 4096, 12, 20]),
    max_payload=st.sampled_from([1048576, 1048576, 16]),
    headers=st.sampled_from([True, True, True, False]),
)


def compiled(data: bytes, bounds: model.Limits) -> Parsed:
    keywords: dict[str, Any] = {
        "max_control_line": bounds.max_control_line,
        "max_payload": bounds.max_payload,
        "headers": bounds.headers,
    }
    return parser.parse(data, **keywords)


def in_pieces(pieces: Sequence[bytes], bounds: model.Limits) -> Parsed:
    """As a connection does it: what is left over stands in front of what comes next."""
    found: list[tuple[object, ...]] = []
    left = b""
    for piece in pieces:
        more, left, fault = compiled(left + piece, bounds)
        found += more
        if fault is not None:
            return found, b"", fault
    return found, left, None


@settings(max_examples=1500, deadline=None)
@given(streams, limits)
@example(b"PING" + b"x" * 5000 + b"\n", model.Limits())
@example(b"CONNECT " + b"x" * 4096 + b"\r\n", model.Limits())
@example(b"PUB" + b" " * 5000 + b"a 0\r\n\r\n", model.Limits())
@example(b"SUB \n a 1\r\n", model.Limits())
def test_parser_and_model_agree_on_any_bytes(data: bytes, bounds: model.Limits) -> None:
    assert compiled(data, bounds) == model.parse(data, bounds)


@settings(max_examples=600, deadline=None)
@given(streams, limits, st.data())
def test_any_chunking_gives_the_same_frames_and_the_same_fault(
    data: bytes, bounds: model.Limits, draw: st.DataObject
) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6)))
    edges = [0, *cuts, len(data)]
    pieces = [data[start:end] for start, end in itertools.pairwise(edges)]
    whole = compiled(data, bounds)
    chunked = in_pieces(pieces, bounds)
    assert (chunked[0], chunked[2]) == (whole[0], whole[2])
    if whole[2] is None:
        assert chunked[1] == whole[1]


@settings(max_examples=300, deadline=None)
@given(streams, limits)
def test_byte_by_byte_gives_the_same_frames_and_the_same_fault(
    data: bytes, bounds: model.Limits
) -> None:
    pieces = [data[at : at + 1] for at in range(len(data))]
    whole, chunked = compiled(data, bounds), in_pieces(pieces, bounds)
    assert (chunked[0], chunked[2]) == (whole[0], whole[2])


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(model.VERBS), st.integers(-20, 20), st.sampled_from(["\r\n", "\n"]))
def test_lines_about_as_long_as_limit_are_checked_alike_whole_and_in_two(
    verb: str, over: int, end: str
) -> None:
    bounds = model.Limits(max_control_line=64)
    data = (f"{verb} " + "x" * (64 + over) + end).encode()
    whole = compiled(data, bounds)
    assert whole == model.parse(data, bounds)
    for cut in range(len(data)):
        chunked = in_pieces([data[:cut], data[cut:]], bounds)
        assert (chunked[0], chunked[2]) == (whole[0], whole[2]), cut


@pytest.mark.parametrize("start", [b"PING ", b"PUB ", b"CONNECT ", b"+OK "])
def test_line_of_blanks_is_not_waited_for_for_ever(start: bytes) -> None:
    bounds = model.Limits()
    room = model.LINE_BYTES_MAX - len(start)
    for blanks_sent, wanted in ((room, None), (room + 1, model.LINE_TOO_LONG)):
        data = start + b" " * blanks_sent
        assert compiled(data, bounds)[2] == wanted
        assert compiled(data, bounds) == model.parse(data, bounds)
