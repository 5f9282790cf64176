"""A Spark driver that writes files into a stream until it is killed: run as a program.

Arguments: the server's URL, a directory with `in/*.txt`, a delivery, and what to do with bad rows:
`fail`, `skip`, `deadletter` (stream DEAD) or `files` (directory `dead`). A query that fails because
its workers were killed is started again at once; the one that ends well says `done`. Every line of
a file is a row that names itself; `bad…` lines have a subject that OUT does not take.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import PySparkException

from penstock.spark import register, session

ARROW_ROWS = 40
BATCH_ROWS = 30


def bad_row_options(bad_rows: str, directory: Path) -> dict[str, str]:
    if bad_rows == "deadletter":
        return {"onBadRow": "deadletter", "deadLetterSubject": "DEAD.letters"}
    if bad_rows == "files":
        return {"onBadRow": "deadletter", "deadLetterPath": str(directory / "dead")}
    return {"onBadRow": bad_rows}


def main(url: str, place: str, delivery: str, bad_rows: str) -> None:
    directory = Path(place)
    spark = session(
        "victim",
        "local[2]",
        light=True,
        **{
            "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS,
            "spark.log.level": "OFF",
            "spark.local.dir": directory / "local",
        },
    )
    # Spark looks for formats once, in a process that may be killed like any other.
    register(spark)
    rows = spark.readStream.option("maxFilesPerTrigger", 1).text(str(directory / "in"))
    subject = "if(value like 'bad%', concat('ELSEWHERE.', value), concat('OUT.', value)) subject"
    frame = rows.selectExpr(subject, "value data", "value msgId")
    while True:
        query = (
            frame.writeStream.format("jetstream")
            .options(url=url, stream="OUT", delivery=delivery)
            .options(**{"batchRows": BATCH_ROWS} if delivery == "strict" else {})
            .options(reportPath=str(directory / "numbers"), **bad_row_options(bad_rows, directory))
            .option("checkpointLocation", str(directory / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        try:
            query.awaitTermination()
        except PySparkException:
            print("again", flush=True)
            continue
        print("done", flush=True)
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
