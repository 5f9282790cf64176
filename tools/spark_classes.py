"""Writes a class data archive of the classes Spark loads, so that the JVMs of the tests start
faster.

    python tools/spark_classes.py build/spark-classes.jsa

A JVM with this archive (`-XX:SharedArchiveFile=...`) starts Spark with half the CPU time. A JVM of
another version, or with other jars, ignores it. Without a Java runtime nothing is written.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nats

import penstock
from penstock.spark import session
from penstock.spark.java import NoJava, java_home
from penstock.spark.spark_session import LIGHT_JAVA

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 10


def main(archive: Path) -> None:
    try:
        java_home()
    except NoJava as error:
        print(f"no archive of Spark's classes: {error}")
        return
    archive.parent.mkdir(parents=True, exist_ok=True)
    unfinished = archive.with_suffix(".unfinished")
    unfinished.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        penstock.ThreadedServer(jetstream=True, store_dir=f"{place}/store") as server,
    ):
        asyncio.run(fill(server.url))
        write(unfinished, server.url, Path(place))
    unfinished.replace(archive)


async def fill(url: str) -> None:
    client = await nats.connect(url)
    context = client.jetstream()
    for name in ("IN", "OUT"):
        await context.add_stream(name=name, subjects=[f"{name}.>"])
    for number in range(MESSAGES):
        await context.publish("IN.a", b"%d" % number)
    await client.close()


def write(archive: Path, url: str, place: Path) -> None:
    """Run a JVM that writes the archive when it exits, and wait for it."""
    options = f"{LIGHT_JAVA} -XX:ArchiveClassesAtExit={archive}"
    conf: dict[str, Any] = {
        "spark.driver.extraJavaOptions": options,
        "spark.local.dir": place / "local",
        "spark.log.level": "ERROR",
        "spark.sql.shuffle.partitions": 2,
        "spark.sql.warehouse.dir": place / "warehouse",
    }
    spark = session("classes", "local[2]", **conf)
    use(spark, url, place)
    java = spark.sparkContext._gateway.proc
    spark.stop()
    java.stdin.close()
    java.wait()


def use(spark: SparkSession, url: str, place: Path) -> None:
    """Do what tests do: a batch and a query, from a stream, to files and to a stream."""
    rows = spark.read.format("jetstream").option("url", url).load("IN")
    rows.groupBy("subject").count().orderBy("subject").collect()
    rows.write.parquet(str(place / "rows"))
    spark.read.parquet(str(place / "rows")).collect()
    query = (
        spark.readStream.format("jetstream")
        .option("url", url)
        .load("IN")
        .selectExpr("'OUT.a' subject", "data", "stream", "seq")
        .writeStream.format("jetstream")
        .options(url=url, checkpointLocation=str(place / "checkpoint"))
        .trigger(availableNow=True)
        .start("OUT")
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
