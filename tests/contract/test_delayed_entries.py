"""The JetStream contract holds for a server that applies its entries some turns later.

Each test runs contract files in a process of their own, in which `support.delayed_server` replaces
our server: entries are applied 0, 1 or 5 turns of the event loop after they were proposed.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sockets

FOLDER = Path(__file__).with_name("jetstream")
SAMPLE = ("test_atomic_batch.py", "test_fast_batch.py", "test_retention.py", "test_counters.py")
#: It reads what it published without an ack, which need not be applied yet.
DESELECTED = "test_across_accounts.py::test_stream_captures_imported_messages[ours]"


@pytest.mark.parametrize(
    ("turns", "files"),
    [(1, SAMPLE), *((turns, ("",)) for turns in (0, 1, 5))],
    ids=["1-sample", "0-all", "1-all", "5-all"],
)
def test_contract_holds_when_entries_are_applied_later(turns: int, files: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider"]
    paths = [str(FOLDER / name) for name in files]
    run = subprocess.run(
        [*command, "-k", "ours", "--deselect", str(FOLDER / DESELECTED), *paths],
        env=os.environ | {"PENSTOCK_TEST_DELAY": str(turns)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-8000:]
