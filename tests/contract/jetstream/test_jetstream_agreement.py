"""Random lives of streams, lived on both servers at once: every answer must be the same.

A step that only looks is taken again for a moment before a difference counts, since consequences
of acknowledgements may come after their answers; a step that changes something is not.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from support.jetstream import Client
from support.lives import LOOKING, Actor, Life, Step
from support.patience import PATIENCE_SECONDS
from support.schemas import check_answer
from support.servers import OURS, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import Implementation, ServerUnderTest

#: Lives that meet a known difference, told in docs/compatibility.md.
DIFFERENT = {
    13: "there, removing a message acknowledges earlier ones of an ack-all consumer",
    38: "there, a purge of some messages leaves the consumer sequence of the floor behind",
    50: "there, a pull moves the position of a consumer of a memory stream that delivered nothing",
    53: "there, a consumer whose filter was removed has no interest in any message",
}
SEEDS = [
    pytest.param(seed, marks=pytest.mark.xfail(strict=True, reason=DIFFERENT[seed]))
    if seed in DIFFERENT
    else seed
    for seed in (*range(40), 50, 53, 73, 104)
]
STEPS = 60
SETTLE_SECONDS = 2.0
"""How long answers that are known to differ get to become equal."""


@pytest.fixture
def clients(
    shared: Callable[[Implementation | None], ServerUnderTest],
) -> Iterator[list[Client]]:
    """One client on each server."""
    addresses = [shared(one).address for one in (REFERENCE, OURS)]
    opened = [Client(address, check=check_answer) for address in addresses]
    yield opened
    for client in opened:
        client.close()


@pytest.mark.parametrize("seed", SEEDS)
def test_random_operations_give_the_same_results(seed: int, clients: list[Client]) -> None:
    life = Life(seed)
    config = life.config
    actors = [Actor(client, life) for client in clients]
    patience = SETTLE_SECONDS if seed in DIFFERENT else PATIENCE_SECONDS
    story = [f"stream {config}"]
    try:
        assert_equal([actor.begin(config) for actor in actors], story)
        for step in life.steps(STEPS):
            story.append(f"{step.verb} {step.details}")
            assert_equal(taken(step, actors, patience), story)
        for name in ("", "k", "l", "m"):
            look = Step("look", {"consumer": name})
            assert_equal(taken(look, actors, patience), [*story, f"look {name}"])
    finally:
        for actor in actors:
            actor.end()


def taken(step: Step, actors: list[Actor], patience: float) -> list[Any]:
    """What each server says to a step; looking is repeated until both say the same."""
    answers = [actor.take(step) for actor in actors]
    deadline = time.monotonic() + patience
    while step.verb in LOOKING and answers[0] != answers[1] and time.monotonic() < deadline:
        answers = [actor.take(step) for actor in actors]
    return answers


def assert_equal(answers: list[Any], story: list[str]) -> None:
    reference, ours = answers
    told = "\n".join(story[-25:])
    assert ours == reference, f"ours     {ours}\nreference {reference}\nafter\n{told}"
