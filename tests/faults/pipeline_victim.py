"""A Spark driver that archives a bucket's stream and folds it until it is killed: run as a program.

Arguments: the server's URL, a directory, the bucket, how far to go. Jobs that fail because their
workers were killed are begun again at once; when all is done it says `done`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import PySparkException

from penstock.spark import session
from penstock.spark.jobs import ServerOrigin, archive, fold

SEQUENCES_PER_COMMIT = 60
FOLD_STEP = 200
SHARDS = 2


def main(url: str, place: str, bucket: str, last: str) -> None:
    directory = Path(place)
    spark = session(
        "victim",
        "local[2]",
        light=True,
        **{
            "spark.log.level": "OFF",
            "spark.local.dir": directory / "local",
            "spark.sql.shuffle.partitions": 2,
        },
    )
    origin = ServerOrigin(spark, f"KV_{bucket}", {"url": url})

    def go_on() -> None:
        archive(
            spark,
            origin,
            str(directory / "archive"),
            until=int(last) // 2,
            sequences_per_commit=SEQUENCES_PER_COMMIT,
        )
        for until in range(FOLD_STEP, int(last) + FOLD_STEP, FOLD_STEP):
            fold(
                spark,
                origin,
                bucket,
                str(directory / "folds"),
                archive=str(directory / "archive"),
                shards=SHARDS,
                until=until,
            )

    while True:
        try:
            go_on()
        except PySparkException:
            print("again", flush=True)
            continue
        print("done", flush=True)
        return


if __name__ == "__main__":
    main(*sys.argv[1:])
