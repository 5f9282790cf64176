"""Which task of which write this is: what Spark tells a worker about itself.

A value that travels back to the driver with what the task wrote. `attempt` counts from 0; a batch
of a streaming query may have been tried by an earlier run as well, which Spark tells nobody.
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
        """Also true for batch writes inside of `foreachBatch`."""
        return bool(self.query)

    @property
    def ledger(self) -> str:
        """What the ledger of this write is called; empty if nothing names it."""
        return self.write_id or self.query

    @property
    def name(self) -> str:
        """For file names: the same in every attempt at this partition."""
        named = "-".join(part for part in (self.query, self.write_id) if part) or "write"
        return f"{named}-{self.batch}-{self.partition}"

    def scope(self, *more: str) -> str:
        """A short word for this query, this write and what else is given; empty if nothing is."""
        named = (self.query, self.write_id, *more)
        if not any(named):
            return ""
        return hashlib.blake2b("\0".join(named).encode(), digest_size=SCOPE_BYTES).hexdigest()


def this_task(write_id: str) -> Task:
    """The task that runs in this worker."""
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
