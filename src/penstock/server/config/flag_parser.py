"""Parse command-line flags by Go's rules.

One or two dashes mean the same. A value is the next word or follows `=`; a boolean flag takes a
value only after `=`. The first word that is not a flag, or `--`, ends the flags. Invariant: the
only error is `UsageError`. `command_line` defines what a flag does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import TypeAlias

from msgspec import Struct

from penstock.server.config.quantities import INT64_MAX, INT64_MIN

FlagValue: TypeAlias = bool | int | str
FlagValues: TypeAlias = Mapping[str, FlagValue]

_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))
_OCTAL = re.compile(r"[+-]?0[0-7_]+")


class UsageError(Exception):
    """A command line that cannot be executed.

    `message` goes to stderr after the program's name; with `show_usage` the usage also goes to
    stdout. The exit code after a mistyped flag is 0, as in the reference.
    """

    def __init__(self, message: str, exit_code: int = 1, *, show_usage: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.exit_code = exit_code
        self.show_usage = show_usage


class FlagKind(Enum):
    """The type of a flag's value."""

    BOOL = "bool"
    INT = "int"
    TEXT = "text"


class Flag(Struct, frozen=True):
    """One flag with all its spellings; the last is the name under which its value is stored."""

    spellings: tuple[str, ...]
    kind: FlagKind
    argument: str
    help: str

    @property
    def name(self) -> str:
        return self.spellings[-1]


class Words(Struct, frozen=True):
    """A parsed command line: the flags (the last of each wins), and the remaining words."""

    flags: FlagValues
    rest: tuple[str, ...]


def scan(argv: Sequence[str], known: Sequence[Flag]) -> Words:
    """Parse the flags at the start of `argv`."""
    by_spelling = {spelling: flag for flag in known for spelling in flag.spellings}
    given: dict[str, FlagValue] = {}
    words = list(argv)
    while words and len(words[0]) > 1 and words[0].startswith("-"):
        word = words.pop(0)
        if word == "--":
            break
        spelling, equals, value = _split(word)
        flag = by_spelling.get(spelling)
        if flag is None:
            raise _mistyped(f"flag provided but not defined: -{spelling}")
        if flag.kind is FlagKind.BOOL:
            given[flag.name] = _boolean(spelling, value) if equals else True
            continue
        if not equals:
            if not words:
                raise _mistyped(f"flag needs an argument: -{spelling}")
            value = words.pop(0)
        given[flag.name] = _integer(spelling, value) if flag.kind is FlagKind.INT else value
    return Words(given, tuple(words))


def _mistyped(message: str) -> UsageError:
    return UsageError(message, exit_code=0, show_usage=True)


def _split(word: str) -> tuple[str, str, str]:
    stripped = word[2:] if word.startswith("--") else word[1:]
    if not stripped or stripped[0] in "-=":
        raise _mistyped(f"bad flag syntax: {word}")
    return stripped.partition("=")


def _boolean(spelling: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise _mistyped(f"invalid boolean value {_quoted(value)} for -{spelling}: parse error")


def _integer(spelling: str, value: str) -> int:
    try:
        if value != value.strip():
            raise ValueError
        number = int(value, 8 if _OCTAL.fullmatch(value) else 0)
    except ValueError:
        raise _mistyped(
            f"invalid value {_quoted(value)} for flag -{spelling}: parse error"
        ) from None
    if not INT64_MIN <= number <= INT64_MAX:
        raise _mistyped(f"invalid value {_quoted(value)} for flag -{spelling}: value out of range")
    return number


def _quoted(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)
