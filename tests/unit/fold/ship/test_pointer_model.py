"""Every order of events of a few exporters and a pruner, with the rules the transport uses.

Time plays no part: nothing waits for a grace, and a process that stops for ever has died. After
each step the pointer must not have gone back, and what it names must be there. Each rule taken away
must lead to a counterexample; so the model does see what the rules are for.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import pytest

from penstock.fold.artifact.manifest import Manifest
from penstock.fold.ship.pointer import newer_than, payload_name, prunable, published
from support.folds import at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from penstock.kv.kv_types import WatchCursor

#: The cursors each exporter exports at, one after the other; two of them meet at the same.
ROUNDS = ((1, 3), (2, 4), (2, 3))
STATES_MIN = 5_000


@cache
def artifact(exporter: int, number: int) -> bytes:
    """The pointer of an exporter's artifact."""
    cursor = at(ROUNDS[exporter][number])
    return Manifest(1, "append-log", "2", cursor.raw.hex(), exporter, []).encode()


@cache
def name_of(pointer: bytes) -> str:
    return payload_name(pointer)


@cache
def rank(pointer: bytes | None) -> int:
    there = published(pointer)
    return 0 if there is None else there.cursor.rank


@dataclass(frozen=True)
class Rules:
    """What the transport keeps to."""

    newer: Callable[[bytes | None, WatchCursor], WatchCursor | None] = newer_than
    prunable: Callable[[str, bytes | None], bool] = lambda name, pointer: prunable(
        name, pointer, age=0, grace=0
    )
    conditional: bool = True
    payload_first: bool = True


class Exporter(NamedTuple):
    """At its `number`-th artifact; `read` once it knows a pointer, which is then `seen`."""

    number: int = 0
    phase: str = "export"
    seen: bytes | None = None


class State(NamedTuple):
    """Everything there is. `pruning` is the pointer a pruner goes by, if it is at work."""

    pointer: bytes | None
    payloads: frozenset[str]
    exporters: tuple[Exporter, ...]
    pruning: bytes | None


def start() -> State:
    return State(None, frozenset(), (Exporter(),) * len(ROUNDS), None)


def steps(state: State, rules: Rules) -> Iterator[tuple[str, State]]:
    """Whatever can happen next."""
    for who, exporter in enumerate(state.exporters):
        if exporter.number < len(ROUNDS[who]):
            what, now, then = exported(state, who, exporter, rules)
            exporters = (*state.exporters[:who], now, *state.exporters[who + 1 :])
            yield f"{who} {what}", then._replace(exporters=exporters)
    yield "prune: read the pointer", state._replace(pruning=state.pointer)
    for name in state.payloads:
        if rules.prunable(name, state.pruning):
            yield f"prune: delete {name}", state._replace(payloads=state.payloads - {name})


def exported(
    state: State, who: int, exporter: Exporter, rules: Rules
) -> tuple[str, Exporter, State]:
    """The next step of one exporter."""
    ours = artifact(who, exporter.number)
    over = Exporter(exporter.number + 1)
    with_payload = state._replace(payloads=state.payloads | {name_of(ours)})
    if exporter.phase == "export":
        now = exporter._replace(phase="look")
        return "upload", now, with_payload if rules.payload_first else state
    if exporter.phase == "look":
        return "read the pointer", exporter._replace(phase="swap", seen=state.pointer), state
    if exporter.phase == "late upload":
        return "upload", over, with_payload
    if rules.newer(exporter.seen, at(rank(ours))) is not None:
        return "superseded", over, state
    if rules.conditional and state.pointer != exporter.seen:
        return "lost the race", exporter._replace(phase="look", seen=None), state
    now = over if rules.payload_first else exporter._replace(phase="late upload")
    return "publish", now, state._replace(pointer=ours)


def wrong_with(before: State, after: State) -> str:
    if rank(after.pointer) < rank(before.pointer):
        return "the pointer went back"
    if after.pointer is not None and name_of(after.pointer) not in after.payloads:
        return "the pointer names what is not there"
    return ""


def explore(rules: Rules) -> tuple[int, list[str]]:
    """How many states there are, and a way to one that is wrong, if there is any."""
    came: dict[State, tuple[State, str] | None] = {start(): None}
    waiting = [start()]
    for state in waiting:
        for what, after in steps(state, rules):
            wrong = wrong_with(state, after)
            if wrong:
                return len(came), [*way_to(state, came), what, wrong]
            if after not in came:
                came[after] = (state, what)
                waiting.append(after)
    return len(came), []


def way_to(state: State, came: dict[State, tuple[State, str] | None]) -> list[str]:
    way = []
    while (before := came[state]) is not None:
        state, what = before
        way.append(what)
    return way[::-1]


def test_no_order_of_events_breaks_what_is_published() -> None:
    states, wrong = explore(Rules())
    assert wrong == []
    assert states > STATES_MIN


def below_or_same(name: str, pointer: bytes | None) -> bool:
    return pointer is not None and int(name[:16], 16) <= rank(pointer) and name != name_of(pointer)


def all_but_the_target(name: str, pointer: bytes | None) -> bool:
    return pointer is not None and name != name_of(pointer)


MUTANTS = {
    "publish whatever is there": replace(Rules(), newer=lambda pointer, ours: None),
    "publish without a condition": replace(Rules(), conditional=False),
    "publish before the upload": replace(Rules(), payload_first=False),
    "prune the same rank too": replace(Rules(), prunable=below_or_same),
    "prune all but the target": replace(Rules(), prunable=all_but_the_target),
    "prune without a pointer": replace(Rules(), prunable=lambda name, pointer: pointer is None),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_rule_taken_away_is_missed(name: str) -> None:
    _, wrong = explore(MUTANTS[name])
    assert wrong != []
