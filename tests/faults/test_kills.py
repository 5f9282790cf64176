"""Fifty processes are killed with SIGKILL while they write: what they acknowledged is there."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from faults.ledger import Ledger, victims
from faults.victim import Task

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

LONG_ROUNDS = 10
KILLS = 50
ACKS_MAX = 25
SMALL_BLOCKS = 32 * 1024


@pytest.mark.parametrize("block_bytes", [SMALL_BLOCKS, 8 << 20], ids=["small blocks", "default"])
def test_acks_of_killed_process_are_kept(
    block_bytes: int, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    chance, ledger = Random(block_bytes), Ledger()
    directory = str(tmp_path / "store")
    with victims() as making:
        for life in range(KILLS * rounds // 2):
            task = Task(directory, life, block_bytes)
            making.live_and_die(task, ledger, acks=chance.randrange(1, ACKS_MAX))
            assert ledger.check(directory) == []
            tried["processes killed"] += 1
    assert len(ledger.life_of) > KILLS
    tried["messages acknowledged by processes that were killed"] += len(ledger.life_of)


def test_ledger_that_was_never_written_is_not_believed(tmp_path: Path) -> None:
    """The check can fail: an acknowledgement of something that was not stored."""
    ledger = Ledger()
    ledger.note("+1 3", life=0)
    assert len(ledger.check(str(tmp_path / "store"))) == 3
