"""Copies a stream to another with any Spark: every message once.

    spark-submit --master spark://host:7077 examples/copy_stream.py nats://host:4222 EV COPY
    python examples/copy_stream.py nats://host:4222 EV COPY --remote sc://host:15002

It first copies everything the stream holds; with --checkpoint it then copies what arrived
meanwhile. Message ids consist of stream and sequence, and rows whose id the target already has are
skipped. So a message that both reads return is stored once, also if you run the program again
within the target's duplicate window. The Python of Spark's workers needs Penstock; nothing else is
installed or sent.
"""

import argparse

from pyspark.sql import DataFrame, SparkSession, functions


def renamed(rows: DataFrame, target: str) -> DataFrame:
    """Return the messages with subjects that begin with the target's name, and with message ids."""
    subject = functions.regexp_replace("subject", r"^[^.]+", target)
    named = rows.withColumn("msgId", functions.concat_ws(":", "stream", "seq"))
    return named.withColumn("subject", subject)


def copy(spark: SparkSession, options: dict[str, str], source: str, target: str) -> None:
    """Copy everything the stream holds now."""
    rows = spark.read.format("jetstream").options(**options).load(source)
    writer = renamed(rows, target).write.format("jetstream").option("url", options["url"])
    writer.option("onDuplicate", "skip").mode("append").save(target)


def follow(
    spark: SparkSession, options: dict[str, str], source: str, target: str, checkpoint: str
) -> None:
    """Copy what the checkpoint has not seen, up to now."""
    rows = spark.readStream.format("jetstream").options(**options).load(source)
    query = (
        renamed(rows, target)
        .writeStream.format("jetstream")
        .option("url", options["url"])
        .option("onDuplicate", "skip")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start(target)
    )
    query.awaitTermination()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="of the NATS server")
    parser.add_argument("source", help="the stream to read")
    parser.add_argument("target", help="the stream to write; it takes TARGET.>")
    parser.add_argument("--checkpoint", help="where the query keeps how far it is")
    parser.add_argument("--partitions", default="2", help="in how many tasks, at least")
    parser.add_argument("--remote", help="a Spark Connect server")
    given = parser.parse_args()
    builder = SparkSession.builder.appName("copy a stream")
    spark = (builder.remote(given.remote) if given.remote else builder).getOrCreate()
    options = {"url": given.url, "minPartitions": given.partitions}
    copy(spark, options, given.source, given.target)
    if given.checkpoint:
        follow(spark, options, given.source, given.target, given.checkpoint)
    spark.stop()


if __name__ == "__main__":
    main()
