"""A short seeded run of the fuzzer of JetStream operations, with a restart of each kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fuzz.operations import Fuzz
from fuzz.requests import Operations
from fuzz.server_process import Harm

if TYPE_CHECKING:
    from pathlib import Path

OPERATIONS = 3000
RESTART_EVERY = 700


def test_no_operations_harm_server(tmp_path: Path) -> None:
    fuzz = Fuzz(tmp_path, 8, sanitized=False)
    try:
        fuzz.run(OPERATIONS, RESTART_EVERY)
    except Harm as harm:
        harm.add_note(fuzz.story(100))
        raise
    finally:
        fuzz.close()
    assert fuzz.restarts == 4
    assert fuzz.ledger.codes["publish ok"] > 100, "most operations must do something"
    assert fuzz.ledger.codes["STREAM.CREATE ok"] > 10


def test_seed_always_makes_the_same_operations() -> None:
    first, second = Operations(3), Operations(3)
    assert [first.draw() for _ in range(500)] == [second.draw() for _ in range(500)]
