"""The bound on log lines about refusals."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from penstock.server.net.refusal_log import (
    CLIENT_PART,
    VIOLATION_BYTES_PER_S,
    VIOLATION_LINES_PER_S,
    WINDOW_S,
    ViolationLog,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


OF_ONE_CLIENT = VIOLATION_LINES_PER_S // CLIENT_PART


class Timers:
    def __init__(self) -> None:
        self.armed: list[tuple[float, Callable[[], object]]] = []

    def arm(self, seconds: float, call: Callable[[], object]) -> None:
        self.armed.append((seconds, call))

    def fire(self) -> None:
        waiting, self.armed = self.armed, []
        for _, call in waiting:
            call()


def logged_by(lines: ViolationLog, client: str, account: str, count: int) -> None:
    for number in range(count):
        lines.write(client, account, f"violation {number}")


def test_lines_beyond_bound_are_counted_in_one(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    lines = ViolationLog(timers.arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for client in range(2 * CLIENT_PART):
            logged_by(lines, f"client {client}", "A", OF_ONE_CLIENT)
        assert [seconds for seconds, _ in timers.armed] == [WINDOW_S]
        timers.fire()
    assert len(caplog.messages) == VIOLATION_LINES_PER_S + 1
    assert caplog.messages[0] == "client 0 - violation 0"
    assert caplog.messages[-1].startswith(f'Account "A": {VIOLATION_LINES_PER_S} more violations')


def test_one_client_leaves_room_for_the_others_of_its_account(
    caplog: pytest.LogCaptureFixture,
) -> None:
    timers = Timers()
    lines = ViolationLog(timers.arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        logged_by(lines, "loud", "A", OF_ONE_CLIENT + 9)
        logged_by(lines, "quiet", "A", 1)
        timers.fire()
    assert caplog.messages[-2:-1] == ["quiet - violation 0"]
    assert caplog.messages[-1].startswith('Account "A": 9 more violations')


def test_one_account_leaves_room_for_others(caplog: pytest.LogCaptureFixture) -> None:
    lines = ViolationLog(Timers().arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for client in range(2 * CLIENT_PART):
            logged_by(lines, f"client {client}", "A", OF_ONE_CLIENT)
        logged_by(lines, "other", "B", 1)
    assert caplog.messages[-1] == "other - violation 0"


def test_long_lines_are_bounded_by_their_bytes(caplog: pytest.LogCaptureFixture) -> None:
    lines = ViolationLog(Timers().arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for _ in range(5):
            lines.write("client", "A", "x" * (VIOLATION_BYTES_PER_S // CLIENT_PART // 2))
    assert len(caplog.messages) == 2


def test_every_second_has_its_own_bound(caplog: pytest.LogCaptureFixture) -> None:
    timers = Timers()
    lines = ViolationLog(timers.arm)
    with caplog.at_level(logging.ERROR, "penstock"):
        for _ in range(3):
            lines.write("client", "A", "violation")
            timers.fire()
    assert caplog.messages == ["client - violation"] * 3
