"""Many patterns, and which of them may meet another one: a trie that is asked instead of them all.

`match.collides` decides; the trie only leaves out what cannot collide. A token that begins like a
wildcard is kept apart from the others, because `collides` may take it for one. Patterns that are
kept are valid; what is asked may be anything. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.subjects.match import collides
from penstock.subjects.tokens import ANY_TAIL, WILDCARDS, tokenise

if TYPE_CHECKING:
    from collections.abc import Iterator

_WILD: Final = tuple(WILDCARDS)


class _Node:
    __slots__ = ("owners", "plain", "wild")

    def __init__(self) -> None:
        self.plain: dict[str, _Node] = {}
        self.wild: dict[str, _Node] = {}
        self.owners: dict[str, str] = {}  # who has the pattern that ends here -> the pattern

    def below(self, token: str) -> dict[str, _Node]:
        return self.wild if token.startswith(_WILD) else self.plain

    @property
    def is_empty(self) -> bool:
        return not (self.plain or self.wild or self.owners)


class PatternIndex:
    """Patterns, each with an owner; an owner may have many, and has each once."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: str, owner: str) -> None:
        node = self._root
        for token in tokenise(pattern):
            node = node.below(token).setdefault(token, _Node())
        node.owners[owner] = pattern

    def remove(self, pattern: str, owner: str) -> None:
        """Takes out what was added."""
        path, node = [], self._root
        for token in tokenise(pattern):
            path.append((node.below(token), token))
            node = path[-1][0][token]
        del node.owners[owner]
        for children, token in reversed(path):
            if children[token].is_empty:
                del children[token]

    def owners_meeting(self, pattern: str) -> Iterator[str]:
        """Who has a pattern that may match what this one matches; somebody may come up twice."""
        for owner, own in _candidates(self._root, tokenise(pattern), 0):
            if collides(pattern, own):
                yield owner


def _candidates(node: _Node, tokens: list[str], at: int) -> Iterator[tuple[str, str]]:
    yield from node.owners.items()
    if at == len(tokens):
        return
    token = tokens[at]
    if token == ANY_TAIL:
        yield from _all_below(node)
    elif token.startswith(_WILD):
        for child in (*node.plain.values(), *node.wild.values()):
            yield from _candidates(child, tokens, at + 1)
    else:
        child_or_none = node.plain.get(token)
        if child_or_none is not None:
            yield from _candidates(child_or_none, tokens, at + 1)
        for child in node.wild.values():
            yield from _candidates(child, tokens, at + 1)


def _all_below(node: _Node) -> Iterator[tuple[str, str]]:
    waiting = [*node.plain.values(), *node.wild.values()]
    while waiting:
        node = waiting.pop()
        yield from node.owners.items()
        waiting += [*node.plain.values(), *node.wild.values()]
