"""A short seeded run of the fuzzer: the server lives, answers, logs no bug, keeps its size."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from fuzz import protocol
from support.servers import OURS, pool
from support.victims import MIB, Victim

if TYPE_CHECKING:
    from support.servers import ServerPool

__all__ = ["pool"]

CONVERSATIONS = 1500
WARM_UP = 300
GUARDED = 'authorization { user: amy, password: "secret" }\n'


@pytest.mark.parametrize(
    ("config", "flags"),
    [("", ()), ("disable_sublist_cache: true\nmax_control_line: 64\nmax_payload: 100\n", ("-DV",))],
    ids=["default", "small limits, traced"],
)
def test_no_conversation_harms_server(
    pool: ServerPool, config: str, flags: tuple[str, ...]
) -> None:
    server = pool.start(OURS, config, flags)
    try:
        victim = Victim(server)
        protocol.run(server.port, range(WARM_UP))
        before, files = victim.resident(), victim.open_files()
        protocol.run(server.port, range(WARM_UP, CONVERSATIONS))
        victim.check_well()
        victim.wait_for_files(files)
        # A sanitizer keeps freed memory for a while, to recognise a use of it.
        assert victim.resident() - before < 24 * MIB or "libasan" in os.environ.get(
            "LD_PRELOAD", ""
        )
    finally:
        server.kill()


def test_no_conversation_gets_past_login(pool: ServerPool) -> None:
    server = pool.start(OURS, GUARDED)
    try:
        victim = Victim(server, login={"user": "amy", "pass": "secret"})
        with victim.client() as witness:
            witness.send("SUB > 1\r\n")
            witness.fence()
            for seed in range(300):
                protocol.converse(server.port, seed)
                assert witness.deliveries() == []
        victim.check_well()
    finally:
        server.kill()


def test_seed_makes_the_same_conversation_again() -> None:
    assert protocol.Speaker(7).conversation() == protocol.Speaker(7).conversation()
