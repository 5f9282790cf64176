"""How long the fault tests run, and what they tried in all.

A test runs one round of what it tries, as in `make test`. With `PENSTOCK_FAULT_TIMES`, which
`make faults` sets to 1, it runs as many as its file's `LONG_ROUNDS`, chosen so that all files
together take an hour; or so many times that. Every test counts what it tried; the sums are printed
at the end, so a run that quietly tried nothing is seen.
"""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from support.servers import ServerPool, implementation

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from _pytest.terminal import TerminalReporter

    from support.servers import Implementation, ServerUnderTest

__all__ = ["implementation"]

STORE_FLAGS = ("-js", "-sd", "store")

TRIED: Counter[str] = Counter()


@pytest.fixture
def rounds(request: pytest.FixtureRequest) -> int:
    times = int(os.environ.get("PENSTOCK_FAULT_TIMES", "0"))
    long_rounds: int = request.module.LONG_ROUNDS
    return max(1, times * long_rounds)


@pytest.fixture
def tried() -> Counter[str]:
    return TRIED


@pytest.fixture
def spark_server(tmp_path: Path, implementation: Implementation) -> Iterator[ServerUnderTest]:
    """A server with JetStream for drivers of Spark; without a Java there is nothing to drive."""
    from penstock.spark.java import NoJava, java_home

    try:
        java_home()
    except NoJava as error:
        pytest.skip(f"SPARK IS NOT TESTED: {error}")
    servers = ServerPool(tmp_path / "servers")
    yield servers.get(implementation, flags=STORE_FLAGS)
    servers.close()


def pytest_terminal_summary(terminalreporter: TerminalReporter) -> None:
    if TRIED:
        terminalreporter.section("faults tried")
        for what, count in sorted(TRIED.items()):
            terminalreporter.write_line(f"{count:>9,}  {what}")
