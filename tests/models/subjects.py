"""Naive models of the subject relations: every literal over a tiny alphabet is tried.

Slow and obvious on purpose. `ALPHABET` holds the tokens a test draws its subjects from; with
patterns of at most `TOKENS_MAX` tokens, literals of `TOKENS_MAX + 1` tokens tell them all apart.
"""

import functools
import itertools
import re

ALPHABET = ("a", "b", "c")
TOKENS_MAX = 3

LITERALS = tuple(
    ".".join(tokens)
    for length in range(1, TOKENS_MAX + 2)
    for tokens in itertools.product(ALPHABET, repeat=length)
)


def matches(literal: str, pattern: str) -> bool:
    """A pattern as a regular expression over the text of the literal."""
    parts = [_expression(token) for token in pattern.split(".")]
    return re.fullmatch(r"\.".join(parts), literal) is not None


def _expression(token: str) -> str:
    return {"*": r"[^.]+", ">": r"[^.]+(?:\.[^.]+)*"}.get(token, re.escape(token))


@functools.cache
def matched(pattern: str) -> frozenset[str]:
    """Every literal of the tiny world that the pattern matches."""
    return frozenset(literal for literal in LITERALS if matches(literal, pattern))
