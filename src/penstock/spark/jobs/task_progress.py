"""Progress of a Spark job, for a progress bar: finished tasks, or messages that a stream received.

A thread polls while the body runs, and once more at its end, and calls `progress` with the amount
done and the total. Spark plans stage by stage, so the number of tasks may grow. A failed poll is
skipped: progress reporting never fails a job.
"""

from __future__ import annotations

import threading
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from penstock.bulk.errors import BulkError
from penstock.spark.options import ConnectionOptions, parse
from penstock.spark.spark_connection import shared_reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from pyspark.sql import SparkSession

    Progress = Callable[[int, int], None]

LOOK_SECONDS: Final = 0.5


@contextmanager
def task_progress(spark: SparkSession, progress: Progress | None) -> Iterator[None]:
    """Report the tasks of everything that Spark computes for this thread while the body runs."""
    if progress is None:
        yield
        return
    context = spark.sparkContext
    group = f"penstock-{uuid.uuid4().hex}"
    context.setJobGroup(group, "penstock pipeline")
    try:
        with _looking(lambda: progress(*_tasks(spark, group))):
            yield
    finally:
        context._jsc.clearJobGroup()


@contextmanager
def message_progress(
    connection: Mapping[str, str], stream: str, total: int, progress: Progress | None
) -> Iterator[None]:
    """Report how many messages a stream received since the body began, of `total`."""
    if progress is None:
        yield
        return
    reader = shared_reader(parse(ConnectionOptions, connection))
    before = reader.stream_state(stream).last_seq

    def look() -> None:
        with suppress(BulkError):
            progress(min(total, reader.stream_state(stream).last_seq - before), total)

    with _looking(look):
        yield


@contextmanager
def _looking(look: Callable[[], None]) -> Iterator[None]:
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(LOOK_SECONDS):
            look()

    thread = threading.Thread(target=run, name="penstock progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
    look()


def _tasks(spark: SparkSession, group: str) -> tuple[int, int]:
    """Return the number of finished and of planned tasks of a group."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(group)]
    numbers = {stage for job in jobs if job is not None for stage in job.stageIds}
    stages = [tracker.getStageInfo(number) for number in numbers]
    known = [stage for stage in stages if stage is not None]
    return sum(one.numCompletedTasks for one in known), sum(one.numTasks for one in known)
