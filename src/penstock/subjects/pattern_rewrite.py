"""Renaming: rewrites the subjects of one pattern to another pattern, and back.

An import shows subjects that another account calls `theirs` under a local name, `ours`. The
wildcards of both correspond: by `*` in the same order, or by `$2` and `{{wildcard(2)}}` in any
order. Every wildcard is used once, so that both directions are defined. Patterns are rewritten like
literals. The constructor raises `TransformFault` for a pair that cannot be rewritten this way.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.subjects.tokens import ANY_TAIL, ANY_TOKEN, SEPARATOR, has_wildcard, tokenise
from penstock.subjects.transform import Transform

_REFERENCE: Final = re.compile(r"\$([0-9]+)|\{\{\s*[wW]ildcard\s*\(\s*([0-9]+)\s*\)\s*\}\}")


class Renaming:
    """Rewrites between `theirs` in the other account and `ours` in this one."""

    def __init__(self, theirs: str, ours: str) -> None:
        """Check and compile the pair. Raises `TransformFault`."""
        self.theirs: Final = theirs
        self._is_same: Final = theirs == ours
        self._is_single: Final = not has_wildcard(theirs)
        """A single subject in the other account, whatever the local subject is."""
        if self._is_same or self._is_single:
            self.ours = ours
            return
        numbered = _numbered(ours)
        Transform(theirs, SEPARATOR.join(numbered), strict=True)
        there, here = tokenise(theirs), [_opened(token) for token in numbered]
        self.ours = SEPARATOR.join(here)
        open_there = [at for at, token in enumerate(there) if token == ANY_TOKEN]
        moved = {
            at: open_there[_number(token) - 1]
            for at, token in enumerate(numbered)
            if _REFERENCE.fullmatch(token)
        }
        self._inward: Final = _plan(here, moved)
        self._outward: Final = _plan(there, {position: at for at, position in moved.items()})

    def inward(self, subject: str) -> str:
        """Return the local name of a subject of theirs."""
        if self._is_same:
            return subject
        return self.ours if self._is_single else _renamed(subject, self._inward, self.theirs)

    def outward(self, subject: str) -> str:
        """Return the other account's name of a local subject or pattern."""
        if self._is_same:
            return subject
        return self.theirs if self._is_single else _renamed(subject, self._outward, self.ours)


def _numbered(pattern: str) -> list[str]:
    """Return the tokens, with wildcards replaced by `$1`, `$2` and so on."""
    made = []
    count = 0
    for token in tokenise(pattern):
        count += token == ANY_TOKEN
        made.append(f"${count}" if token == ANY_TOKEN else token)
    return made


def _opened(token: str) -> str:
    return ANY_TOKEN if _REFERENCE.fullmatch(token) else token


def _number(token: str) -> int:
    found = _REFERENCE.fullmatch(token)
    assert found is not None
    return int(found[1] or found[2])


def _plan(tokens: list[str], moved: dict[int, int]) -> list[str | int]:
    """Return how to build the result: literal tokens, and positions to copy from."""
    return [moved.get(at, token) for at, token in enumerate(tokens) if token != ANY_TAIL]


def _renamed(subject: str, plan: list[str | int], source: str) -> str:
    tokens = tokenise(subject)
    made = [part if isinstance(part, str) else tokens[part] for part in plan]
    if source.endswith(ANY_TAIL):
        made += tokens[len(tokenise(source)) - 1 :]
    return SEPARATOR.join(made)
