"""A Spark driver that replays an archive into a stream until it is killed: run as a program.

Arguments: the server's URL, the archive, a directory of its own, a delivery, and what to do with
messages that COPY refuses: `fail`, `skip` or `deadletter` (stream DEAD). A replay that fails
because its workers were killed is started again at once; when it is complete it says `done` and
how many messages were refused.
"""

from __future__ import annotations

import sys
from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.spark import register, session
from penstock.spark.jobs import replay

ARROW_ROWS = 40
BATCH_ROWS = 30


def sink_options(delivery: str, bad_rows: str) -> dict[str, str]:
    options = {"onBadRow": bad_rows}
    if bad_rows == "deadletter":
        options["deadLetterSubject"] = "DEAD.letters"
    if delivery == "strict":
        options["batchRows"] = str(BATCH_ROWS)
    return options


def main(url: str, archive: str, place: str, delivery: str, bad_rows: str) -> None:
    spark = session(
        "victim",
        "local[2]",
        light=True,
        **{
            "spark.sql.execution.arrow.maxRecordsPerBatch": ARROW_ROWS,
            "spark.log.level": "OFF",
            "spark.local.dir": Path(place) / "local",
        },
    )
    register(spark)
    while True:
        try:
            report = replay(
                spark,
                archive,
                "COPY",
                {"url": url},
                rename=("IN.", "COPY."),
                delivery=delivery,
                write_id="copy" if delivery == "strict" else "",
                options=sink_options(delivery, bad_rows),
            )
        except (PySparkException, Py4JJavaError):
            print("again", flush=True)
            continue
        print(f"done, {report.refused} refused", flush=True)
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
