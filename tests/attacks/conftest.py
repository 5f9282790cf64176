"""Servers to be attacked: processes, so that a crash is seen and memory can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from support.servers import OURS, pool
from support.tls import certificates
from support.victims import Victim

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from support.servers import ServerPool

__all__ = ["certificates", "pool"]


GUARDED = 'authorization { user: amy, password: "secret", timeout: 0.5 }\n'
LOGIN = {"user": "amy", "pass": "secret"}


@pytest.fixture
def attack(pool: ServerPool) -> Iterator[Callable[..., Victim]]:
    """Starts a server of the test's own; afterwards it must be as well as before."""
    victims: list[Victim] = []

    def start(config: str = "", *flags: str, **client: Any) -> Victim:
        victims.append(Victim(pool.start(OURS, config, flags), **client))
        return victims[-1]

    yield start
    try:
        for victim in victims:
            victim.check_well()
    finally:
        for victim in victims:
            victim.server.kill()


@pytest.fixture
def unguarded(pool: ServerPool) -> Iterator[Victim]:
    """A shared server that everybody may use."""
    victim = Victim(pool.get(OURS))
    yield victim
    victim.check_well()


@pytest.fixture
def guarded(pool: ServerPool) -> Iterator[Victim]:
    """A shared server that wants a password, soon."""
    victim = Victim(pool.get(OURS, GUARDED), login=LOGIN)
    yield victim
    victim.check_well()
