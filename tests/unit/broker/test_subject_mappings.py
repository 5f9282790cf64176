"""Published subjects that become others."""

from __future__ import annotations

import pytest

from penstock.broker.share_values import Destination, Mapping
from penstock.broker.subject_mappings import MappingFault, Mappings


def mapping(subject: str, *destinations: tuple[str, int] | tuple[str, int, str]) -> Mapping:
    made = [
        Destination(subject=one[0], weight=one[1], cluster=one[2] if len(one) > 2 else "")
        for one in destinations
    ]
    return Mapping(subject=subject, destinations=tuple(made))


def drawn(mappings: Mappings, subject: str) -> dict[str | None, int]:
    """What becomes of a subject, for every number that can be drawn."""
    found: dict[str | None, int] = {}
    for _ in range(100):
        made = mappings.map(subject)
        found[made] = found.get(made, 0) + 1
    return found


def every(*mappings: Mapping, cluster: str = "") -> Mappings:
    """Draws each number below 100 once."""
    numbers = iter(range(100))
    return Mappings(mappings, draw=lambda _: next(numbers), cluster=cluster)


def test_first_mapping_that_covers_subject_decides() -> None:
    mappings = every(mapping("a.b", ("x", 100)), mapping("a.*", ("y.$1", 100)))
    assert [mappings.map(subject) for subject in ("a.b", "a.c", "b")] == ["x", "y.c", "b"]


def test_weights_share_messages() -> None:
    mappings = every(mapping("a.*", ("x.$1", 20), ("y.$1", 30)))
    assert drawn(mappings, "a.b") == {"x.b": 20, "y.b": 30, "a.b": 50}


def test_subject_that_names_itself_loses_the_rest() -> None:
    assert drawn(every(mapping("a", ("a", 30))), "a") == {"a": 30, None: 70}


def test_destinations_of_cluster_hold_there() -> None:
    rule = mapping("a", ("x", 100, "moon"), ("y", 100))
    assert every(rule, cluster="moon").map("a") == "x"
    assert every(rule, cluster="mars").map("a") == "y"
    assert every(rule).map("a") == "y"
    assert every(mapping("a", ("x", 100, "moon"))).map("a") == "a"


@pytest.mark.parametrize(
    ("rule", "told"),
    [
        (mapping("a..b", ("c", 100)), "not a valid subject"),
        (mapping("a", ("b", 60), ("c", 60)), "total weight needs to be <= 100"),
        (mapping("a", ("b", 10), ("b", 10)), 'duplicate entry for "b"'),
        (mapping("a", ("b.$1", 100)), "wildcard index out of range"),
    ],
)
def test_nonsense_is_refused(rule: Mapping, told: str) -> None:
    with pytest.raises(MappingFault, match=told):
        every(rule)
