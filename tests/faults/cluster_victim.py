"""A program for a cluster that copies a stream while one of its tasks comes to harm.

Arguments: the server's URL, a directory, a delivery, a harm. The first attempt at the first
partition writes part of its rows, and then

- `kill`: its executor is killed, Java and all, by the worker that writes;
- `straggle`: it waits until Spark has begun a second attempt elsewhere, and writes on beside it.

Each harm happens once, which a file in the directory tells. At the end a file `done` says how many
attempts began. The classes here travel to executors by value, as those of any program do.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter

if TYPE_CHECKING:
    from collections.abc import Iterator

HARMED = "jetstream-harmed"
TWIN_SECONDS = 600.0
POLL_SECONDS = 0.02
BATCHES_FIRST = 2
PARTITIONS = 4


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


class Harmed(DataSource):
    """`jetstream`, with harm."""

    @classmethod
    def name(cls) -> str:
        return HARMED

    def writer(self, schema: Any, overwrite: bool) -> DataSourceArrowWriter:
        from penstock.spark.jetstream_source import JetStream

        own = ("harm", "place")
        options = {name: value for name, value in self.options.items() if name not in own}
        inner = JetStream(options).writer(schema, overwrite)
        return HarmedWriter(inner, self.options["harm"], Path(self.options["place"]))


class HarmedWriter(DataSourceArrowWriter):
    def __init__(self, inner: Any, harm: str, place: Path) -> None:
        self._inner = inner
        self._harm = harm
        self._place = place

    def write(self, iterator: Iterator[Any]) -> Any:
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0:
            (self._place / f"attempt-{context.taskAttemptId()}").touch()
            iterator = self._harmed(iterator)
        return self._inner.write(iterator)

    def commit(self, messages: Any) -> None:
        self._inner.commit(messages)

    def _harmed(self, batches: Iterator[Any]) -> Iterator[Any]:
        for number, batch in enumerate(batches):
            if number == BATCHES_FIRST:
                self._strike()
            yield batch

    def _strike(self) -> None:
        try:
            (self._place / "armed").unlink()
        except FileNotFoundError:
            return  # it has happened
        if self._harm == "kill":
            executor = parent_of(os.getppid())  # the worker's parent forks workers, for Java
            os.kill(executor, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        deadline = time.monotonic() + TWIN_SECONDS
        while len(list(self._place.glob("attempt-*"))) < 2:
            assert time.monotonic() < deadline, "no second attempt was begun"
            time.sleep(POLL_SECONDS)


def main(url: str, place: str, delivery: str, harm: str) -> None:
    spark = SparkSession.builder.getOrCreate()
    spark.dataSource.register(Harmed)
    directory = Path(place)
    (directory / "armed").touch()
    rows = spark.read.format("jetstream").options(url=url, minPartitions=PARTITIONS).load("IN")
    frame = rows.selectExpr("concat('OUT.', seq) subject", "data", "stream", "seq", "timestamp")
    strict = {"writeId": "copy", "batchRows": 20} if delivery == "strict" else {}
    writing = frame.write.format(HARMED).mode("append")
    writing.options(url=url, stream="OUT", delivery=delivery, harm=harm, place=place).options(
        **strict
    ).save()
    attempts = len(list(directory.glob("attempt-*")))
    assert not (directory / "armed").exists(), "nothing came to harm"
    (directory / "done").write_text(str(attempts))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
