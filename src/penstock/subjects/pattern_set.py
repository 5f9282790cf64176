"""PatternIndex: finds which of many patterns collide with or cover another, using a trie.

`match.collides` and `match.is_subset` decide; the trie only skips patterns that cannot match. A
token that starts with a wildcard character is kept apart, because both functions may treat it as a
wildcard. Any string may be added and queried. Pure. A query visits nodes one by one and yields
each, so that the caller can serve others in between; with many wildcard patterns it may visit most
nodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from penstock.subjects.match import collides, is_subset
from penstock.subjects.tokens import ANY_TAIL, ANY_TOKEN, WILDCARDS, tokenise

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.base.slices import Sliced

K = TypeVar("K")

VISITS_PER_SLICE: Final = 256
"""Nodes that a query visits before other clients are served."""
ITEMS_PER_SLICE: Final = 128
"""Patterns that are added or compared before other clients are served."""

_WILD: Final = tuple(WILDCARDS)
_BELOW: Final = -1


_NONE: Final[dict[str, Any]] = {}
"""Shared by nodes without children, so that a large index has few objects; never written to."""


class _Node(Generic[K]):
    __slots__ = ("owners", "plain", "wild")

    def __init__(self) -> None:
        self.plain: dict[str, _Node[K]] = _NONE
        self.wild: dict[str, _Node[K]] = _NONE
        self.owners: dict[K, str] = {}  # owner -> the pattern that ends here

    def child(self, token: str) -> _Node[K]:
        """Return the child node for a token, created if it is new."""
        children = self.below(token)
        if children is _NONE:
            children = {}
            if token.startswith(_WILD):
                self.wild = children
            else:
                self.plain = children
        found = children.get(token)
        if found is None:
            found = children[token] = _Node()
        return found

    def below(self, token: str) -> dict[str, _Node[K]]:
        return self.wild if token.startswith(_WILD) else self.plain

    @property
    def is_empty(self) -> bool:
        return not (self.plain or self.wild or self.owners)


class PatternIndex(Generic[K]):
    """Patterns with owners; an owner may have many patterns, each once."""

    def __init__(self) -> None:
        self._root: _Node[K] = _Node()

    def add(self, pattern: str, owner: K) -> None:
        node = self._root
        for token in tokenise(pattern):
            node = node.child(token)
        node.owners[owner] = pattern

    def remove(self, pattern: str, owner: K) -> None:
        """Remove a pattern that was added."""
        path, node = [], self._root
        for token in tokenise(pattern):
            path.append((node.below(token), token))
            node = path[-1][0][token]
        del node.owners[owner]
        for children, token in reversed(path):
            if children[token].is_empty:
                del children[token]

    def owners_meeting(self, pattern: str) -> Iterator[K | None]:
        """Yield the owners of patterns that collide with this one; an owner may repeat.

        Yields None after each VISITS_PER_SLICE nodes, so that the caller can serve others.
        """
        for visits, owners in enumerate(self.visit_meeting(pattern), 1):
            for owner, own in owners.items():
                if collides(pattern, own):
                    yield owner
            if visits % VISITS_PER_SLICE == 0:
                yield None

    def visit_meeting(self, pattern: str) -> Iterator[dict[K, str]]:
        """Yield the owners at each node where a colliding pattern may end."""
        tokens = tokenise(pattern)
        waiting = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            yield node.owners
            if at == len(tokens):
                waiting += [(child, _BELOW) for token, child in _tails(node)]
            elif at == _BELOW or tokens[at] == ANY_TAIL:
                waiting += [(child, _BELOW) for child in node.plain.values()]
                waiting += [(child, _BELOW) for child in node.wild.values()]
            else:
                token = tokens[at]
                if token.startswith(_WILD):
                    waiting += [(child, at + 1) for child in node.plain.values()]
                elif token in node.plain:
                    waiting.append((node.plain[token], at + 1))
                for own, child in node.wild.items():
                    waiting.append((child, _BELOW if own == ANY_TAIL else at + 1))

    def visit_covering(self, pattern: str) -> Iterator[dict[K, str]]:
        """Yield the owners at each node where a covering pattern may end."""
        tokens = tokenise(pattern)
        waiting = [(self._root, 0)]
        while waiting:
            node, at = waiting.pop()
            if at == _BELOW:
                yield node.owners
                waiting += [(child, _BELOW) for child in node.plain.values()]
                waiting += [(child, _BELOW) for child in node.wild.values()]
            elif at == len(tokens):
                yield node.owners
            else:
                yield {}
                token = tokens[at]
                if token in node.plain:
                    waiting.append((node.plain[token], at + 1))
                for own, child in node.wild.items():
                    if own == ANY_TAIL:
                        waiting.append((child, _BELOW))
                    elif own == token or own.startswith(ANY_TOKEN):
                        waiting.append((child, at + 1))


def _tails(node: _Node[K]) -> Iterator[tuple[str, _Node[K]]]:
    for token, child in node.wild.items():
        if token == ANY_TAIL:
            yield token, child


class PatternList:
    """The patterns of one list, identified by index; run `fill` before any query."""

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = patterns
        self._index: PatternIndex[int] = PatternIndex()
        self._places: dict[str, list[int]] = {}
        self._has_wild = False
        self._visits = 0

    def fill(self) -> Sliced[None]:
        """Add the patterns to the index."""
        wild = 0
        for at, pattern in enumerate(self.patterns):
            self._places.setdefault(pattern, []).append(at)
            if _looks_wild(pattern):
                self._index.add(pattern, at)
                wild += 1
            if (at + 1) % ITEMS_PER_SLICE == 0:
                yield
        self._has_wild = wild > 0
        if wild == len(self.patterns):
            return
        for at, pattern in enumerate(self.patterns if wild else ()):
            if not _looks_wild(pattern):
                self._index.add(pattern, at)
            if (at + 1) % ITEMS_PER_SLICE == 0:
                yield

    def is_duplicate(self, at: int) -> bool:
        """Return whether the same pattern has a smaller index."""
        return self._places[self.patterns[at]][0] < at

    def met_later(self, at: int) -> Sliced[int | None]:
        """Return the first larger index whose pattern collides with the one at `at`."""
        pattern = self.patterns[at]
        later = [place for place in self._places[pattern] if place > at][:1]
        for owners in self._index.visit_meeting(pattern) if self._has_wild else ():
            for place, own in owners.items():
                if place > at and collides(own, pattern):
                    later.append(place)
            self._visits += 1
            if self._visits % VISITS_PER_SLICE == 0:
                yield
        return min(later, default=None)

    def meets_other(self, at: int) -> Sliced[bool]:
        """Return whether the pattern at `at` collides with another one."""
        pattern = self.patterns[at]
        if len(self._places[pattern]) > 1:
            return True
        for owners in self._index.visit_meeting(pattern) if self._has_wild else ():
            if any(place != at and collides(pattern, own) for place, own in owners.items()):
                return True
            self._visits += 1
            if self._visits % VISITS_PER_SLICE == 0:
                yield
        return False

    def is_covered(self, at: int) -> Sliced[bool]:
        """Return whether the pattern at `at` is a subset of another one."""
        pattern = self.patterns[at]
        if len(self._places[pattern]) > 1 and is_subset(pattern, pattern):
            return True
        for owners in self._index.visit_covering(pattern) if self._has_wild else ():
            if any(place != at and is_subset(pattern, own) for place, own in owners.items()):
                return True
            self._visits += 1
            if self._visits % VISITS_PER_SLICE == 0:
                yield
        return False


def _looks_wild(pattern: str) -> bool:
    return any(wild in pattern for wild in _WILD)
