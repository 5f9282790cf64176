"""The numbers of a sink: one log line for each batch, a warning for repeats, a file to read."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from penstock.spark.query_progress import ProgressListener
from penstock.spark.write.sink_report import LOGGER, SinkNumbers, Written, numbers_of, report
from penstock.spark.write.sink_task import Task

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def numbers(batch: int = 3, repeated: int = 0, attempt: int = 0) -> SinkNumbers:
    """Two tasks of one batch, of which the second may be a later attempt."""
    tasks = [Task("q", "", batch, 0), Task("q", "", batch, 1, attempt)]
    found = numbers_of(
        "stream OUT",
        [
            Written(tasks[0], rows=5, refused=1, bytes=40),
            Written(tasks[1], rows=4, repeated=repeated, bytes=30),
        ],
    )
    assert found is not None
    return found


def logged(one: SinkNumbers, caplog: pytest.LogCaptureFixture) -> list[tuple[int, str]]:
    caplog.clear()
    with caplog.at_level(logging.INFO, logger=LOGGER.name):
        report(one, "")
    return [(record.levelno, record.getMessage()) for record in caplog.records]


def test_batch_is_one_log_line(caplog: pytest.LogCaptureFixture) -> None:
    line = (
        "query q, batch 3 to stream OUT: 9 rows, 8 stored, 0 repeated, 1 refused, 70 bytes, 2 tasks"
    )
    assert logged(numbers(), caplog) == [(logging.INFO, line)]


def test_repeats_of_first_attempt_are_warning(caplog: pytest.LogCaptureFixture) -> None:
    [(level, line)] = logged(numbers(repeated=2), caplog)
    assert level == logging.WARNING
    assert "6 stored, 2 repeated" in line
    assert "right only after a restart" in line


def test_repeats_of_later_attempt_are_none(caplog: pytest.LogCaptureFixture) -> None:
    [(level, _)] = logged(numbers(repeated=2, attempt=1), caplog)
    assert level == logging.INFO


def test_no_report_is_no_numbers() -> None:
    assert numbers_of("stream OUT", []) is None


def progress(batch: int, run: str = "r") -> Any:
    found = SimpleNamespace(name=None, id="q", runId=run, batchId=batch, sources=[])
    return SimpleNamespace(progress=found)


def test_listener_adds_up_numbers_of_batches(tmp_path: Path) -> None:
    heard: list[SinkNumbers] = []
    listener = ProgressListener(report_path=str(tmp_path), on_batch=heard.append)
    for batch in (3, 4):
        report(numbers(batch), str(tmp_path))
        listener.onQueryProgress(progress(batch))
        listener.onQueryProgress(progress(batch))
    assert [one.batch for one in heard] == [3, 4]
    assert listener.batches["q"] == numbers(4)
    assert listener.totals["q"] == {
        "rows": 18, "stored": 16, "repeated": 0, "refused": 2, "bytes": 140
    }  # fmt: skip
    assert 'penstock_spark_sink_refused_total{query="q"} 2\n' in listener.metrics()


def test_run_that_repeats_batch_is_counted_again(tmp_path: Path) -> None:
    listener = ProgressListener(report_path=str(tmp_path))
    report(numbers(), str(tmp_path))
    listener.onQueryProgress(progress(3))
    report(numbers(repeated=4), str(tmp_path))
    listener.onQueryProgress(progress(3, run="s"))
    assert listener.totals["q"]["repeated"] == 4
    assert listener.totals["q"]["rows"] == 18


def test_batches_without_report_change_nothing(tmp_path: Path) -> None:
    listener = ProgressListener(report_path=str(tmp_path))
    listener.onQueryProgress(progress(9))
    assert listener.totals == {}
    assert "sink" not in listener.metrics()
