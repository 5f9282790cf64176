"""Checks of a write against its target: created again, or repeated after the ids were forgotten."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, cast

import pytest

from penstock.spark.write.sink_report import Written
from penstock.spark.write.sink_task import Task
from penstock.spark.write.worker_publisher import SinkError, WorkerPublisher
from penstock.spark.write.write_start import WriteStart, check_created, warn_of_window

if TYPE_CHECKING:
    from penstock.bulk.blocking_publisher import BlockingPublisher

SECOND_NS = 10**9


def target(window_s: int = 120, created: str = "then") -> WorkerPublisher:
    config = {"name": "OUT", "duplicate_window": window_s * SECOND_NS}
    return WorkerPublisher(cast("BlockingPublisher", None), config, "$JS.API", 7, created)


def test_stream_that_was_created_again_is_refused() -> None:
    start = WriteStart(7, "then", "t", 0.0)
    start.check(target())
    with pytest.raises(SinkError, match="deleted and created again"):
        start.check(target(created="now"))
    with pytest.raises(SinkError, match="deleted and created again"):
        check_created(target(), "before")


@pytest.mark.parametrize(
    ("attempt", "ago_s", "is_warned"), [(1, 600, True), (0, 600, False), (1, 5, False)]
)
def test_repeated_task_of_write_longer_than_window_is_warned_of(
    caplog: pytest.LogCaptureFixture, attempt: int, ago_s: int, is_warned: bool
) -> None:
    task = Task("", "w", 0, 3, attempt)
    written = Written(task, rows=5, created="then", began_s=time.time() - ago_s)
    with caplog.at_level(logging.WARNING):
        warn_of_window(target(), [written])
    assert ("may be stored twice" in caplog.text) is is_warned
