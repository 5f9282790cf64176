"""A Spark driver that archives a bucket's stream and folds it until it is killed: run as a program.

Arguments: the server's URL, a directory, the bucket, how far to go, the archive's form. Jobs that
fail because their workers were killed are begun again at once; when all is done it says `done`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from pyspark.errors import PySparkException

from penstock.spark import session
from penstock.spark.jobs import ServerOrigin, archive, fold

sys.path.append(str(Path(__file__).parents[1]))
from support.iceberg import PLACE, catalog_options

SEQUENCES_PER_COMMIT = 60
FOLD_STEP = 200
SHARDS = 2


def place(directory: Path, form: str) -> tuple[str, dict[str, str]]:
    """Where the archive is, and the options of that place."""
    if form == "iceberg":
        return PLACE, catalog_options(directory / "archive")
    return str(directory / "archive"), {}


def main(url: str, top: str, bucket: str, last: str, form: str) -> None:
    directory = Path(top)
    dest, options = place(directory, form)
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
            dest,
            form=form,
            storage_options=options,
            until=int(last) // 2,
            sequences_per_commit=SEQUENCES_PER_COMMIT,
        )
        for until in range(FOLD_STEP, int(last) + FOLD_STEP, FOLD_STEP):
            fold(
                spark,
                origin,
                bucket,
                str(directory / "folds"),
                archive=dest,
                archive_options=options,
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
