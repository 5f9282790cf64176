"""The subjects a consumer wants, as one question: does this one match?

Patterns are sorted by what it takes to answer: whole subjects are looked up, `prefix.>` compares
the beginning, and only the rest is taken apart token by token.
"""

from __future__ import annotations

from penstock.subjects.match import match_literal
from penstock.subjects.tokens import ANY_TAIL, WILDCARDS, tokenise

TAIL = f".{ANY_TAIL}"


class SubjectFilter:
    """A row of patterns; the empty row lets everything through."""

    __slots__ = ("_literals", "_others", "_prefixes", "is_wild", "patterns")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        wild = [p for p in patterns if not WILDCARDS.isdisjoint(tokenise(p))]
        tails = [p for p in wild if p.endswith(TAIL) and _is_literal(p.removesuffix(TAIL))]
        self._literals = frozenset(patterns) - frozenset(wild)
        self._prefixes = tuple(p.removesuffix(ANY_TAIL) for p in tails)
        self._others = tuple(p for p in wild if p not in tails)
        self.is_wild = bool(wild)

    def matches(self, subject: str) -> bool:
        """Whether some pattern lets a literal subject through."""
        if not self.patterns or subject in self._literals or subject.startswith(self._prefixes):
            return True
        return any(match_literal(subject, pattern) for pattern in self._others)


def _is_literal(pattern: str) -> bool:
    return WILDCARDS.isdisjoint(tokenise(pattern))
