"""Identity of a task within a write, as Spark reports it to a worker.

It returns to the driver with the task's result. `attempt` counts from 0; an earlier run of a
streaming query may have tried the same batch as well, which Spark does not report. But a run
repeats at most its first batch: an executor that has seen an earlier batch of this run knows that
this one was not tried before.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark import SparkFiles, TaskContext

from penstock.spark.write.worker_publisher import SinkError

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
#: Spark runs the jobs of a streaming query in a group that is named by the id of the run.
RUN_ID: Final = "spark.jobGroup.id"
RUNS_KEPT: Final = 64
RUNS_DIRECTORY: Final = "penstock-runs"
SCOPE_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one partition.

    `query` is empty outside of streaming queries. `token` tells batch writes apart, and is empty in
    the sink of a query. `may_repeat` is False if no write before this one contained these rows.
    """

    query: str
    write_id: str
    batch: int
    partition: int
    attempt: int = 0
    token: str = ""
    may_repeat: bool = True

    @property
    def is_streaming(self) -> bool:
        """True in a streaming query, and in batch writes inside `foreachBatch`."""
        return bool(self.query)

    @property
    def ledger(self) -> str:
        """Name of the ledger of this write; empty if neither `writeId` nor a query names it."""
        return self.write_id or self.query

    @property
    def name(self) -> str:
        """File name that is the same in every attempt at this partition."""
        parts = (self.query, self.write_id, self.token)
        named = "-".join(part for part in parts if part) or "write"
        return f"{named}-{self.batch}-{self.partition}"

    def scope(self, *more: str) -> str:
        """Return a short hash of this query, this write and `more`; empty if all are empty."""
        named = (self.query, self.write_id, *more)
        if not any(named):
            return ""
        return hashlib.blake2b("\0".join(named).encode(), digest_size=SCOPE_BYTES).hexdigest()


#: The first batch of each run, as far as this process knows.
_first_batches: dict[str, int] = {}


def this_task(write_id: str, token: str = "") -> Task:
    """Return the task that runs in this worker."""
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written in tasks of Spark")
    query = context.getLocalProperty(QUERY_ID) or ""
    batch = int(context.getLocalProperty(BATCH_ID) or 0)
    run = context.getLocalProperty(RUN_ID) or ""
    if query:
        is_known = bool(run) and first_batch(run, batch) < batch
        may_repeat = not is_known or (bool(token) and bool(write_id))
    else:
        may_repeat = bool(write_id)
    return Task(
        query=query,
        write_id=write_id,
        batch=batch,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
        token=token,
        may_repeat=may_repeat,
    )


def first_batch(run: str, batch: int) -> int:
    """Return the first batch of a run that this executor has seen; this one, if it is the first."""
    if run not in _first_batches:
        if len(_first_batches) >= RUNS_KEPT:
            del _first_batches[next(iter(_first_batches))]
        _first_batches[run] = _first_of_executor(run, batch)
    return _first_batches[run]


def _first_of_executor(run: str, batch: int) -> int:
    """Record that a worker process of this executor has seen a batch; return the first recorded.

    Spark gives each application a directory on each executor, and removes it in the end.
    """
    try:
        place = Path(SparkFiles.getRootDirectory(), RUNS_DIRECTORY)
        place.mkdir(exist_ok=True)
        Path(place, f"{run}.{batch}").touch()
        return min(int(one.name.rpartition(".")[2]) for one in place.glob(f"{run}.*"))
    except (OSError, AssertionError):
        return batch
