"""The bound on log lines about refusals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.server.violations import (
    VIOLATION_BYTES_PER_S,
    VIOLATION_LINES_PER_S,
    WINDOW_S,
    ViolationLog,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class Timers:
    def __init__(self) -> None:
        self.armed: list[tuple[float, Callable[[], object]]] = []

    def arm(self, seconds: float, call: Callable[[], object]) -> None:
        self.armed.append((seconds, call))

    def fire(self) -> None:
        waiting, self.armed = self.armed, []
        for _, call in waiting:
            call()


def test_lines_beyond_the_bound_are_counted_in_one(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    lines = ViolationLog(timers.arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for number in range(VIOLATION_LINES_PER_S + 7):
            lines.write("client", f"violation {number}")
        assert [seconds for seconds, _ in timers.armed] == [WINDOW_S]
        timers.fire()
    assert len(caplog.messages) == VIOLATION_LINES_PER_S + 1
    assert caplog.messages[0] == "client - violation 0"
    assert caplog.messages[-1].startswith("7 more violations")


def test_long_lines_are_bounded_by_their_bytes(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    lines = ViolationLog(timers.arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for _ in range(5):
            lines.write("client", "x" * (VIOLATION_BYTES_PER_S // 2))
    assert len(caplog.messages) == 2


def test_every_second_has_its_own_bound(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    lines = ViolationLog(timers.arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for _ in range(3):
            lines.write("client", "violation")
            timers.fire()
    assert caplog.messages == ["client - violation"] * 3
