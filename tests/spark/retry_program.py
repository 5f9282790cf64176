"""Writes with a Spark that repeats failed tasks, as every cluster does: what is stored in the end.

Usage: retry_program.py URL DIRECTORY. Prints one JSON line for each case: its name, and either the
error or "done". A program of its own, since the number of attempts is a setting of a session.
"""

from __future__ import annotations

import json
import re
import sys
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.errors import PySparkException

import penstock.spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame

ATTEMPTS = 3
COLUMNS = "subject string, data string, msgId string"


def main(url: str, directory: str) -> None:
    spark = penstock.spark.session(
        "retries",
        f"local[2,{ATTEMPTS}]",
        light=True,
        **{"spark.log.level": "OFF", "spark.sql.execution.arrow.maxRecordsPerBatch": 500},
    )

    def write(frame: DataFrame, stream: str, **options: Any) -> None:
        chosen = {"url": url, "stream": stream, **options}
        frame.write.format("jetstream").mode("append").options(**chosen).save()

    def table(count: int, id: str, parts: int, stream: str, subject: str = "") -> DataFrame:
        subject = subject or f"'{stream}.a'"
        return spark.range(0, count, 1, parts).selectExpr(
            f"{subject} subject", "'the same' data", f"concat('', {id}) msgId"
        )

    def repeated(stream: str, **options: Any) -> None:
        write(table(40, "id", 2, stream), stream, **options)
        write(table(40, "id", 2, stream), stream, **options)

    cases: dict[str, Callable[[], None]] = {
        # Ids that tasks share, so that a task fails and comes again.
        "SHARED": lambda: write(table(200, "id % 100", 2, "SHARED"), "SHARED"),
        # The last row of one task has the id of a row of the other; the rows before it come twice.
        "LATE": lambda: write(table(4000, "if(id = 3999, 1, id)", 2, "LATE"), "LATE"),
        "LOST": lambda: write(failing(table(3000, "if(id = 2900, 1600, id)", 1, "LOST")), "LOST"),
        "NAMELESS": lambda: repeated("NAMELESS"),
        "NAMED": lambda: repeated("NAMED", writeId="w"),
        "FAILING": lambda: write(failing(table(3000, "id", 2, "FAILING")), "FAILING"),
        "LETTERS": lambda: write(
            failing(table(3000, "id", 1, "LETTERS", "if(id % 100 = 7, null, 'LETTERS.a')")),
            "LETTERS",
            onBadRow="deadletter",
            deadLetterPath=f"{directory}/letters",
        ),
    }
    for name, case in cases.items():
        print(json.dumps([name, outcome(case)]), flush=True)
    letters = spark.read.parquet(f"{directory}/letters")
    print(json.dumps(["letters", letters.count()]), flush=True)
    print(json.dumps(["rows of letters", letters.select("row").distinct().count()]), flush=True)
    spark.stop()


def outcome(case: Callable[[], None]) -> str:
    try:
        case()
    except PySparkException as error:
        found = re.search(r"SinkError: (.*)", str(error))
        return found[1] if found else str(error)
    return "done"


def failing(frame: DataFrame) -> DataFrame:
    """The same rows; the first attempt of each task fails after some of them were sent."""
    return frame.mapInArrow(fail_once, COLUMNS)


def fail_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    context = TaskContext.get()
    assert context is not None
    for number, batch in enumerate(batches):
        if context.attemptNumber() == 0 and number == 2:
            raise RuntimeError("the first attempt fails")
        yield batch


if __name__ == "__main__":
    main(*sys.argv[1:])
