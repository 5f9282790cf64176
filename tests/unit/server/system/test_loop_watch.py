"""The watch of the event loop: how long turns were, and what the long ones did."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from penstock.server.server_log import log
from penstock.server.system.loop_watch import CollectorWatch, LoopWatch

MS = 1_000_000


class Plane:
    short_turns = 7

    def set_watch(self, watch: object) -> None:
        self.watch = watch


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def watch(clock: Clock) -> LoopWatch:
    io_loop: Any = Plane()
    return LoopWatch(io_loop, clock_ns=clock)


def test_turns_are_counted_by_length_and_short_ones_by_plane(watch: LoopWatch) -> None:
    for span_ms in (2, 5, 6, 260, 10_000):
        watch.turn_ended(span_ms * MS)
    counts = dict(watch.histogram())
    assert (counts[1], counts[5], counts[10], counts[250]) == (7, 9, 10, 10)
    assert (counts[500], counts[5_000], counts[None]) == (11, 11, 12)


def test_stall_is_logged_with_part_that_took_most_of_it(
    watch: LoopWatch, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger=log.name):
        watch.note(200 * MS, "request $JS.API.STREAM.PURGE.S")
        watch.note(10 * MS, "stream S")
        watch.turn_ended(300 * MS)
        watch.note(10 * MS, "stream S")
        watch.turn_ended(301 * MS)
        watch.turn_ended(249 * MS)
    logged = [record.getMessage() for record in caplog.records]
    assert logged == [
        "the event loop was held for 300 ms by: request $JS.API.STREAM.PURGE.S",
        "the event loop was held for 301 ms by: serving clients",
    ]
    assert (watch.stalls, watch.worst_ns) == (2, 301 * MS)


def test_work_outside_turn_is_one_case_with_turns_inside(watch: LoopWatch, clock: Clock) -> None:
    def work() -> None:
        clock.now_ns += 20 * MS
        watch.turn_ended(20 * MS)

    watch.run("queued API requests", work)
    assert (watch.worst_ns, watch.worst_operation) == (20 * MS, "queued API requests")
    assert dict(watch.histogram())[None] == 8


def test_long_collection_of_garbage_names_turn(watch: LoopWatch, clock: Clock) -> None:
    collector = CollectorWatch(watch, clock_ns=clock)
    collector("start", {"generation": 2})
    clock.now_ns += 90 * MS
    collector("stop", {"generation": 2})
    watch.turn_ended(100 * MS)
    assert watch.worst_operation == "garbage collection, generation 2"
