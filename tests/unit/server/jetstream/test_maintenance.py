"""Unconfirmed changes are written within their window, whatever the load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.server.jetstream.maintenance import UPKEEP_S, Maintenance

if TYPE_CHECKING:
    from collections.abc import Callable

PROMISED_S = 0.25
"""What docs/reliability.md states about unconfirmed acknowledgements."""


class Handle:
    def __init__(self, clock: Clock, due_s: float, act: Callable[[], None]) -> None:
        self.due_s, self.act = due_s, act
        self._clock = clock

    def cancel(self) -> None:
        self._clock.timers.remove(self)


class Clock:
    """Time that passes when a test advances it."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.timers: list[Handle] = []

    def call_later(self, delay_s: float, act: Callable[[], None]) -> Handle:
        self.timers.append(Handle(self, self.now_s + delay_s, act))
        return self.timers[-1]

    def advance(self, seconds: float) -> None:
        self.now_s += seconds
        for timer in [one for one in self.timers if one.due_s <= self.now_s]:
            self.timers.remove(timer)
            timer.act()


class Host:
    """Changes, and writes what has changed."""

    def __init__(self, clock: Clock, upkeep: Maintenance) -> None:
        self._clock, self._upkeep = clock, upkeep
        self.unwritten: list[float] = []
        self.longest_s = 0.0
        self.compacted = 0

    def change(self) -> None:
        self.unwritten.append(self._clock.now_s)
        self._upkeep.want(self)

    def compact(self) -> None:
        self.compacted += 1

    def flush_consumers(self) -> None:
        waited = [self._clock.now_s - since for since in self.unwritten]
        self.longest_s = max([self.longest_s, *waited])
        self.unwritten.clear()


def test_change_is_written_within_window_that_is_promised() -> None:
    clock = Clock()
    upkeep = Maintenance(clock.call_later)
    host, other = Host(clock, upkeep), Host(clock, upkeep)
    host.change()
    clock.advance(PROMISED_S / 2)
    other.change()
    clock.advance(PROMISED_S / 2)
    assert (host.unwritten, other.unwritten) == ([], [])
    assert host.compacted == 1
    assert UPKEEP_S <= PROMISED_S


def test_changes_that_never_end_put_nothing_off() -> None:
    clock = Clock()
    host = Host(clock, upkeep := Maintenance(clock.call_later))
    for _ in range(1000):
        host.change()
        clock.advance(PROMISED_S / 64)
    assert upkeep is not None
    assert 0 < host.longest_s <= PROMISED_S


def test_nothing_is_done_for_unchanged_drivers() -> None:
    clock = Clock()
    host = Host(clock, Maintenance(clock.call_later))
    host.change()
    clock.advance(PROMISED_S)
    clock.advance(10 * PROMISED_S)
    assert (host.compacted, clock.timers) == (1, [])


def test_stopping_leaves_no_timer() -> None:
    clock = Clock()
    upkeep = Maintenance(clock.call_later)
    Host(clock, upkeep).change()
    upkeep.stop()
    assert clock.timers == []
