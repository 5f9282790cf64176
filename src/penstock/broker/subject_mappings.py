"""Subject mappings of an account: published subjects become others, chosen by weight.

The first mapping whose pattern covers a subject decides. If the weights of its destinations add up
to less than 100 percent, the rest keeps its subject; but if the subject itself is one of the
destinations, the rest is dropped: the reference offers this to test message loss. The caller passes
the random source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.subjects.match import is_subset
from penstock.subjects.tokens import ANY_TOKEN, SEPARATOR, is_valid_subject, tokenise
from penstock.subjects.transform import Transform, TransformFault, check_mapping

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from penstock.broker.share_values import Destination, Mapping

WHOLE: Final = 100
"""Percent."""


class MappingFault(ValueError):
    """A mapping that is invalid; the text gives the reason."""


class _Choice(NamedTuple):
    below: int
    """This choice applies to drawn numbers below this one."""
    transform: Transform


class _Rule(NamedTuple):
    subject: str
    choices: tuple[_Choice, ...]


class Mappings:
    """All mappings of one account."""

    def __init__(
        self, mappings: Iterable[Mapping], *, draw: Callable[[int], int], cluster: str = ""
    ) -> None:
        """`draw(n)` returns a random number below n. Raises `MappingFault`."""
        self._draw: Final = draw
        self._rules: Final = [_rule(mapping, cluster, draw) for mapping in mappings]

    def __bool__(self) -> bool:
        return bool(self._rules)

    def map(self, subject: str) -> str | None:
        """Return the subject that a published one becomes; None if the message is dropped."""
        for rule in self._rules:
            if is_subset(subject, rule.subject):
                return self._chosen(rule, subject)
        return subject

    def _chosen(self, rule: _Rule, subject: str) -> str | None:
        drawn = 0 if rule.choices[0].below == WHOLE else self._draw(WHOLE)
        for choice in rule.choices:
            if drawn < choice.below:
                made = choice.transform.match(subject)
                return subject if made is None else made
        return None


def _rule(mapping: Mapping, cluster: str, draw: Callable[[int], int]) -> _Rule:
    if not is_valid_subject(mapping.subject):
        raise MappingFault(f'Subject "{mapping.subject}" is not a valid subject')
    _check_weights(mapping.destinations)
    here = [one for one in mapping.destinations if cluster and one.cluster == cluster]
    here = here or [one for one in mapping.destinations if not one.cluster]
    pairs = [(one.weight, _transform(mapping.subject, one.subject, draw)) for one in here]
    total = sum(weight for weight, _ in pairs)
    if total != WHOLE and not any(one.subject == mapping.subject for one in mapping.destinations):
        pairs.append((WHOLE - total, Transform(mapping.subject, _itself(mapping.subject))))
    pairs.sort(key=lambda pair: pair[0])
    choices = []
    below = 0
    for weight, transform in pairs:
        below += weight
        choices.append(_Choice(below, transform))
    return _Rule(mapping.subject, tuple(choices))


def _check_weights(destinations: Iterable[Destination]) -> None:
    totals: dict[str, int] = {}
    seen = set()
    for one in destinations:
        if one.subject in seen:
            raise MappingFault(f'duplicate entry for "{one.subject}"')
        seen.add(one.subject)
        totals[one.cluster] = totals.get(one.cluster, 0) + one.weight
        if totals[one.cluster] > WHOLE:
            raise MappingFault("total weight needs to be <= 100")


def _transform(subject: str, dest: str, draw: Callable[[int], int]) -> Transform:
    try:
        check_mapping(subject, dest)
        return Transform(subject, dest, draw=draw)
    except TransformFault as fault:
        raise MappingFault(str(fault)) from None


def _itself(subject: str) -> str:
    """Return a destination that leaves the subject unchanged."""
    made = []
    count = 0
    for token in tokenise(subject):
        count += token == ANY_TOKEN
        made.append(f"${count}" if token == ANY_TOKEN else token)
    return SEPARATOR.join(made)
