"""What a task knows of earlier attempts: its batch is new if this process saw an earlier one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from pyspark import SparkFiles

from penstock.spark.write import sink_task
from penstock.spark.write.sink_task import RUNS_KEPT, first_batch, this_task

if TYPE_CHECKING:
    from pathlib import Path


class Context:
    def __init__(self, batch: int, query: str = "q", run: str = "r") -> None:
        self._properties = {
            sink_task.BATCH_ID: str(batch),
            sink_task.QUERY_ID: query,
            sink_task.RUN_ID: run,
        }

    def getLocalProperty(self, name: str) -> str:
        return self._properties[name]

    def partitionId(self) -> int:
        return 3

    def attemptNumber(self) -> int:
        return 1


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Sets the task that runs."""
    monkeypatch.setattr(sink_task, "_first_batches", {})
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)

    def be(one: Context) -> None:
        monkeypatch.setattr(sink_task, "TaskContext", type("T", (), {"get": lambda: one}))

    return be


def test_first_batch_of_run_may_repeat_and_later_ones_may_not(context: Any) -> None:
    for run, batch, may_repeat in (
        ("a", 7, True),
        ("a", 7, True),
        ("a", 8, False),
        ("b", 8, True),
        ("b", 9, False),
    ):
        context(Context(batch, run=run))
        assert this_task("").may_repeat is may_repeat


def test_named_write_within_batch_may_repeat(context: Any) -> None:
    for batch in (1, 2):
        context(Context(batch))
        assert this_task("w", token="OUT").may_repeat
    assert not this_task("", token="OUT-1").may_repeat
    assert not this_task("w").may_repeat, "the sink of a query, not a write in foreachBatch"


def test_batch_write_may_repeat_if_it_has_name(context: Any) -> None:
    context(Context(0, query=""))
    assert this_task("w", token="OUT").may_repeat
    assert not this_task("", token="OUT-1").may_repeat


def test_names_of_dead_letters_tell_writes_apart(context: Any) -> None:
    context(Context(0, query=""))
    names = {this_task("w", "OUT").name, this_task("w", "B").name, this_task("", "OUT-1").name}
    assert names == {"w-OUT-0-3", "w-B-0-3", "OUT-1-0-3"}
    context(Context(5))
    assert this_task("").name == "q-5-3"


def test_another_process_of_executor_knows_the_first_batch(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    context(Context(3))
    assert this_task("").may_repeat
    monkeypatch.setattr(sink_task, "_first_batches", {})
    context(Context(4))
    assert not this_task("").may_repeat
    monkeypatch.setattr(sink_task, "_first_batches", {})
    context(Context(3))
    assert this_task("").may_repeat, "a repeated task of the first batch"


@pytest.mark.usefixtures("context")
def test_runs_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without a directory of the executor; with one, the executor still knows the first batch."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path / "missing"))
    for run in range(RUNS_KEPT + 5):
        assert first_batch(str(run), 3) == 3
    assert len(sink_task._first_batches) == RUNS_KEPT
    assert first_batch("0", 9) == 9
