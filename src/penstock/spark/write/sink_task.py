"""Identity of a task within a write, as Spark reports it to a worker.

It returns to the driver with the task's result. `attempt` counts from 0; an earlier run of a
streaming query may have tried the same batch as well, which Spark does not report.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from pyspark import TaskContext

from penstock.spark.write.worker_publisher import SinkError

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
SCOPE_BYTES: Final = 6


@dataclass(frozen=True, slots=True)
class Task:
    """One attempt at one partition. `query` is empty outside of streaming queries."""

    query: str
    write_id: str
    batch: int
    partition: int
    attempt: int = 0

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
        named = "-".join(part for part in (self.query, self.write_id) if part) or "write"
        return f"{named}-{self.batch}-{self.partition}"

    def scope(self, *more: str) -> str:
        """Return a short hash of this query, this write and `more`; empty if all are empty."""
        named = (self.query, self.write_id, *more)
        if not any(named):
            return ""
        return hashlib.blake2b("\0".join(named).encode(), digest_size=SCOPE_BYTES).hexdigest()


def this_task(write_id: str) -> Task:
    """Return the task that runs in this worker."""
    context = TaskContext.get()
    if context is None:
        raise SinkError("rows are written in tasks of Spark")
    batch = context.getLocalProperty(BATCH_ID)
    return Task(
        query=context.getLocalProperty(QUERY_ID) or "",
        write_id=write_id,
        batch=int(batch) if batch else 0,
        partition=context.partitionId(),
        attempt=context.attemptNumber(),
    )
