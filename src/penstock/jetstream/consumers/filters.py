"""Subject filters of a consumer: decides whether a subject matches any of them.

Patterns are grouped by the cost of matching: literal subjects are looked up, a few patterns of the
form `prefix.>` compare the prefix, a few others are matched token by token. More patterns go into a
trie, so that the time per subject does not grow with the number of filters.
"""

from __future__ import annotations

from typing import Final

from penstock.subjects.match import match_literal
from penstock.subjects.tokens import ANY_TAIL, WILDCARDS, tokenise
from penstock.subjects.trie import SubList, Subscription

TAIL: Final = f".{ANY_TAIL}"
FEW_PATTERNS_MAX: Final = 8
"""Wildcard patterns that are matched one by one; with more, a trie is used."""


class SubjectFilter:
    """A tuple of patterns. A subject matches if any pattern matches; () matches everything."""

    __slots__ = ("_literals", "_others", "_prefixes", "_trie", "is_wild", "patterns")

    def __init__(self, patterns: tuple[str, ...]) -> None:
        self.patterns = patterns
        maybe = [p for p in patterns if "*" in p or ">" in p]
        wild = [p for p in maybe if not _is_literal(p)]
        self._literals = frozenset(patterns) - frozenset(wild)
        self.is_wild = bool(wild)
        self._trie: SubList | None = None
        self._prefixes: tuple[str, ...] = ()
        self._others: tuple[str, ...] = ()
        if len(wild) > FEW_PATTERNS_MAX:
            self._trie = SubList(cache=False)
            for pattern in wild:
                self._trie.insert(Subscription(pattern))
            return
        tails = [p for p in wild if p.endswith(TAIL) and _is_literal(p.removesuffix(TAIL))]
        self._prefixes = tuple(p.removesuffix(ANY_TAIL) for p in tails)
        self._others = tuple(p for p in wild if p not in tails)

    def matches(self, subject: str) -> bool:
        """Return whether any pattern matches a literal subject."""
        if not self.patterns or subject in self._literals or subject.startswith(self._prefixes):
            return True
        if self._trie is not None:
            return self._trie.has_interest(subject)
        return any(match_literal(subject, pattern) for pattern in self._others)


def _is_literal(pattern: str) -> bool:
    return WILDCARDS.isdisjoint(tokenise(pattern))
