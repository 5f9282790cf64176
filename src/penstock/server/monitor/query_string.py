"""Query strings of monitoring requests, parsed as in the reference.

The first value of a name counts, an empty value counts as absent, and an undecodable pair is
skipped. A value of the wrong type is refused with the reference's text, which names Go's parsers.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl

TRUE_WORDS: Final = frozenset(("1", "t", "T", "TRUE", "true", "True"))
FALSE_WORDS: Final = frozenset(("0", "f", "F", "FALSE", "false", "False"))
PAIRS_MAX: Final = 64
INT_MIN, INT_MAX, UINT_MAX = -(2**63), 2**63 - 1, 2**64 - 1
_INTEGER: Final = re.compile(r"[+-]?[0-9]+")


class BadQuery(ValueError):
    """The request has an invalid parameter or names an unknown object; the text is the response."""


class Query:
    """The decoded pairs of one query string."""

    def __init__(self, raw: str) -> None:
        self._values: dict[str, str] = {}
        for pair in raw.split("&", PAIRS_MAX)[:PAIRS_MAX]:
            for name, value in parse_qsl(pair, keep_blank_values=True):
                self._values.setdefault(name, value)

    def text(self, name: str) -> str:
        return self._values.get(name, "")

    def flag(self, name: str) -> bool:
        word = self.text(name)
        if word and word not in TRUE_WORDS and word not in FALSE_WORDS:
            raise BadQuery(
                f"Error decoding boolean for '{name}': "
                f'strconv.ParseBool: parsing "{word}": invalid syntax'
            )
        return word in TRUE_WORDS

    def integer(self, name: str) -> int:
        word = self.text(name)
        if not word:
            return 0
        problem = _integer_problem(word, INT_MIN, INT_MAX)
        if problem:
            raise BadQuery(
                f"Error decoding int for '{name}': strconv.Atoi: parsing \"{word}\": {problem}"
            )
        return int(word)

    def unsigned(self, name: str) -> int:
        word = self.text(name)
        if not word:
            return 0
        signed = word[0] in "+-"
        problem = "invalid syntax" if signed else _integer_problem(word, 0, UINT_MAX)
        if problem:
            raise BadQuery(
                f"Error decoding uint64 for '{name}': "
                f'strconv.ParseUint: parsing "{word}": {problem}'
            )
        return int(word)


def _integer_problem(word: str, low: int, high: int) -> str:
    if not _INTEGER.fullmatch(word):
        return "invalid syntax"
    # Check the length before the conversion, because the digits come from a peer.
    if len(word) > len(str(UINT_MAX)) + 1 or not low <= int(word) <= high:
        return "value out of range"
    return ""
