"""How long the fault tests run, and what they tried in all.

`PENSTOCK_FAULT_ROUNDS` (1 by default, as in `make test`) multiplies the number of random lives and
cuts; `make faults` sets it. Every test counts what it tried; the sums are printed at the end, so a
run that quietly tried nothing is seen.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from _pytest.terminal import TerminalReporter

TRIED: Counter[str] = Counter()


@pytest.fixture(scope="session")
def rounds() -> int:
    return max(1, int(os.environ.get("PENSTOCK_FAULT_ROUNDS", "1")))


@pytest.fixture
def tried() -> Counter[str]:
    return TRIED


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if TRIED:
        terminalreporter.section("faults tried")
        for what, count in sorted(TRIED.items()):
            terminalreporter.write_line(f"{count:>9,}  {what}")
