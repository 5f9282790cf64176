"""One pattern's subjects under another name, and back again.

An import shows what another account calls `theirs` under a name of our own, `ours`. What `ours`
leaves open, `theirs` leaves open too: by `*`, in the same order, or by `$2` and `{{wildcard(2)}}`
in any order. Every wildcard is used once, so that both directions are defined; patterns are
renamed as literals are. What cannot be renamed so is refused when a `Renaming` is made.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.subjects.tokens import ANY_TAIL, ANY_TOKEN, SEPARATOR, has_wildcard, tokenise
from penstock.subjects.transform import Transform

_REFERENCE: Final = re.compile(r"\$([0-9]+)|\{\{\s*[wW]ildcard\s*\(\s*([0-9]+)\s*\)\s*\}\}")


class Renaming:
    """What is `theirs` there, is `ours` here."""

    def __init__(self, theirs: str, ours: str) -> None:
        """Raises `TransformFault`."""
        self.theirs: Final = theirs
        self._is_same: Final = theirs == ours
        self._is_single: Final = not has_wildcard(theirs)
        """One subject there, whatever is asked for here."""
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
        """What a subject of theirs is called here."""
        if self._is_same:
            return subject
        return self.ours if self._is_single else _renamed(subject, self._inward, self.theirs)

    def outward(self, subject: str) -> str:
        """What a subject or pattern of ours is called there."""
        if self._is_same:
            return subject
        return self.theirs if self._is_single else _renamed(subject, self._outward, self.ours)


def _numbered(pattern: str) -> list[str]:
    """Its tokens, wildcards by their number."""
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
    """How the result is made: tokens that stay, and positions to copy from."""
    return [moved.get(at, token) for at, token in enumerate(tokens) if token != ANY_TAIL]


def _renamed(subject: str, plan: list[str | int], source: str) -> str:
    tokens = tokenise(subject)
    made = [part if isinstance(part, str) else tokens[part] for part in plan]
    if source.endswith(ANY_TAIL):
        made += tokens[len(tokenise(source)) - 1 :]
    return SEPARATOR.join(made)
