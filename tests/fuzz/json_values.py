"""Random JSON for requests: absurd values, mutated documents, spoilt text.

Everything here is a function of the dice it gets, so the same seed makes the same bytes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Callable

Json = Any

NUMBERS: Final = (
    0, 1, -1, 2, 3, 10, 255, 256, 1000, 4097, 65_535, 65_536, 10**6,
    2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 10**18,
    2**63 - 2, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 2, 2**64 - 1, 2**64, 2**65, 10**40,
    -2, -(2**31), -(2**63), -(2**63) - 1, -(10**30), 0.5, -0.0, 1e18, 1e19, 1e308,
)  # fmt: skip
TEXTS: Final = (
    "", " ", ".", "..", "*", ">", "a", "a.b", "a..b", ".a", "a.", "a.*", "a.>", "a.>.b", "*.*",
    "$1", "{{wildcard(1)}}", "{{partition(3,1)}}", "{{wildcard(9)}}", "{{split(1,-)}}", "{{",
    "}}", "{{random(99999999999999999999)}}", "{{partition(0,1)}}", "{{left(1,-5)}}", "$JS.API.>",
    "$SYS.>", "$JS.ACK.>", "$KV.b0.>", "_INBOX.>", "ü.ß", "日本", "\x00", "a\r\nb", "\t", "\ud800",
    "\U0001f600", "x" * 255, "x" * 256, "x" * 3000, "a." * 300 + "b", "a/b", "a\\b", "../..",
    "/etc/passwd", "NaN", "1e3", "-1", "18446744073709551615", "limits", "all", "none", "file",
    "memory", "s2", "explicit", "0001-01-01T00:00:00Z", "2030-01-01T00:00:00Z",
    "9999-12-31T23:59:59.999999999Z", "99999-01-01T00:00:00Z", "2026-02-30T00:00:00Z",
    "2026-01-01T00:00:00+99:99", "not a time",
)  # fmt: skip
DEPTHS: Final = (3, 50, 900, 1100, 20_000)
LIST_LENGTHS: Final = (0, 1, 2, 3, 17, 100, 300)
LONG_LIST: Final = 3000
MUTATIONS_MAX: Final = 3


def absurd(dice: random.Random) -> Json:
    """A value that a careless field would trip over."""
    kind = dice.random()
    if kind < 0.4:
        return dice.choice(NUMBERS)
    if kind < 0.75:
        return dice.choice(TEXTS)
    if kind < 0.85:
        return dice.choice((None, True, False, [], {}, [None], [[]], {"": ""}, {"a": {"b": {}}}))
    if kind < 0.97:
        return many(dice, lambda: dice.choice(TEXTS) if dice.random() < 0.7 else absurd_leaf(dice))
    return nested(dice)


def absurd_leaf(dice: random.Random) -> Json:
    return dice.choice(NUMBERS) if dice.random() < 0.5 else dice.choice(TEXTS)


def many(dice: random.Random, item: Callable[[], Json]) -> list[Json]:
    """A list, long now and then."""
    length = LONG_LIST if dice.random() < 0.01 else dice.choice(LIST_LENGTHS)
    if length > LIST_LENGTHS[3]:
        one = item()
        return [f"{one}{number}" if isinstance(one, str) else one for number in range(length)]
    return [item() for _ in range(length)]


class Nested:
    """Marks a place where the text gets lists within lists: no encoder builds them."""

    def __init__(self, depth: int, brackets: str) -> None:
        self.text = brackets[0] * depth + brackets[1] * depth


def nested(dice: random.Random) -> Nested:
    return Nested(dice.choice(DEPTHS), dice.choice(("[]", '{"a":', "[]"))[:2])


def places(document: Json, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a document, as keys from its root."""
    found = [path]
    if isinstance(document, dict):
        for key, value in document.items():
            found += places(value, (*path, key))
    elif isinstance(document, list):
        for at, value in enumerate(document[:5]):
            found += places(value, (*path, at))
    return found


def mutated(document: Json, dice: random.Random) -> Json:
    """The document with a few values replaced, removed, added or doubled."""
    for _ in range(dice.randint(1, MUTATIONS_MAX)):
        path = dice.choice(places(document))
        if not path:
            if dice.random() < 0.1:
                return absurd(dice)
            if isinstance(document, dict):
                document[dice.choice(("unknown", "", "NAME", "name ", "ü"))] = absurd(dice)
            continue
        holder = document
        for key in path[:-1]:
            holder = holder[key]
        if dice.random() < 0.15:
            del holder[path[-1]]
        else:
            holder[path[-1]] = absurd(dice)
    return document


def encoded(document: Json) -> bytes:
    """The document as a client would send it."""
    marks: list[Nested] = []

    def mark(value: Nested) -> str:
        marks.append(value)
        return f"\x01nested {len(marks) - 1}\x01"

    text = json.dumps(document, default=mark, ensure_ascii=False)
    for number, found in enumerate(marks):
        text = text.replace(f'"\\u0001nested {number}\\u0001"', found.text)
    return text.encode(errors="surrogatepass")


def spoilt(text: bytes, dice: random.Random) -> bytes:
    """The text with some bytes changed, cut or repeated."""
    data = bytearray(text)
    for _ in range(dice.randint(1, MUTATIONS_MAX)):
        at = dice.randrange(len(data) + 1)
        kind = dice.randrange(5)
        if kind == 0:
            data[at : at + 1] = dice.randbytes(1)
        elif kind == 1:
            del data[at : at + dice.randint(1, 20)]
        elif kind == 2:
            data[at:at] = data[at : at + dice.randint(1, 40)]
        elif kind == 3:
            data[at:at] = dice.choice(
                (b'"', b"{", b"}", b"[", b",", b":", b"\\", b"\x00", b"\\ud800")
            )
        else:
            del data[at:]
    return bytes(data)
