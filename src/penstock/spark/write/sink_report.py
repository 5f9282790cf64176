"""Counters of a sink: tasks report them, and the driver publishes their sum.

Every batch writes one line to the logger `penstock.spark.sink`, a warning if rows were repeated in
a batch whose tasks were all first attempts, and a JSON file if `reportPath` is set. Spark itself
shows only how many rows reached the sink (`sink.numOutputRows`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import msgspec
from pyspark.sql.datasource import WriterCommitMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.spark.write.sequence_runs import PackedRuns
    from penstock.spark.write.sink_task import Task

LOGGER: Final = logging.getLogger("penstock.spark.sink")
FORMAT: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@dataclass
class Written(WriterCommitMessage):
    """Result of one task.

    Of its `rows`, `repeated` were in the stream before and `refused` could not be stored. `created`
    is when the stream was created, and `began_s` when the driver planned the write; `messages` are
    the sequences of its rows, as packed runs.
    """

    task: Task
    rows: int = 0
    repeated: int = 0
    refused: int = 0
    bytes: int = 0
    created: str = ""
    began_s: float = 0.0
    messages: PackedRuns = b""


class SinkNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Sum over the tasks of one batch. `rows` = `stored` + `repeated` + `refused`."""

    target: str
    query: str
    write_id: str
    batch: int
    tasks: int
    rows: int
    stored: int
    repeated: int
    refused: int
    bytes: int
    retried: bool

    @property
    def name(self) -> str:
        return report_name(self.query, self.write_id, self.batch)

    @property
    def is_suspicious(self) -> bool:
        """True if rows were repeated, although Spark reports no earlier attempt."""
        return bool(self.repeated) and not self.retried

    def __str__(self) -> str:
        what = f"query {self.query}, batch {self.batch}" if self.query else "batch write"
        named = f" {self.write_id}" if self.write_id else ""
        return (
            f"{what}{named} to {self.target}: {self.rows} rows, {self.stored} stored, "
            f"{self.repeated} repeated, {self.refused} refused, {self.bytes} bytes, "
            f"{self.tasks} tasks"
        )


def numbers_of(target: str, written: Sequence[Written]) -> SinkNumbers | None:
    """Return the sum; None if no task reported."""
    if not written:
        return None
    task = written[0].task
    rows = sum(one.rows for one in written)
    repeated = sum(one.repeated for one in written)
    refused = sum(one.refused for one in written)
    return SinkNumbers(
        target=target,
        query=task.query,
        write_id=task.write_id,
        batch=task.batch,
        tasks=len(written),
        rows=rows,
        stored=rows - repeated - refused,
        repeated=repeated,
        refused=refused,
        bytes=sum(one.bytes for one in written),
        retried=any(one.task.attempt for one in written),
    )


def report_name(query: str, write_id: str, batch: int) -> str:
    """Return the file name of a batch below `reportPath`."""
    named = "-".join(part for part in (query, write_id) if part) or "write"
    return f"{named}-{batch}.json"


def report(numbers: SinkNumbers, path: str) -> None:
    """Log the counters, and write them below `path` unless it is empty."""
    _show_log()
    if numbers.is_suspicious:
        LOGGER.warning(
            "%s: rows were repeated in a first attempt, which is right only after a restart",
            numbers,
        )
    else:
        LOGGER.info("%s", numbers)
    if path:
        from penstock.spark.files.archive_storage import storage_for

        storage_for(path).write(numbers.name, msgspec.json.encode(numbers))


def read_report(path: str, query: str, batch: int, write_id: str = "") -> SinkNumbers | None:
    """Return the counters of a batch that `report` wrote below `path`; None if there are none."""
    from penstock.spark.files.archive_storage import storage_for

    try:
        data = storage_for(path).read(report_name(query, write_id, batch))
    except FileNotFoundError:
        return None
    return msgspec.json.decode(data, type=SinkNumbers)


def _show_log() -> None:
    """Add a log handler: Python processes next to the driver have none, and Spark shows their
    output."""
    if not LOGGER.hasHandlers():
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter(FORMAT))
        LOGGER.addHandler(handler)
        LOGGER.setLevel(logging.INFO)
