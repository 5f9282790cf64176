"""Orders as they come, what they come to, and the large ones back into a stream.

The server is taken from NATS_URL. Needs streams ORDERS (`orders.>`, JSON with `item` and `price`)
and ALERTS (`alerts.>`, with a duplicate window of two minutes or more).
"""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
URL = os.environ.get("NATS_URL", "nats://127.0.0.1:4222")
LARGE = 90

dp.create_sink("alerts", format="jetstream", options={"url": URL, "stream": "ALERTS"})


@dp.table
def orders() -> DataFrame:
    """Every order once, behind where the last run ended."""
    rows = spark.readStream.format("jetstream").option("url", URL).load("ORDERS")
    order = f.from_json(f.col("data").cast("string"), "item string, price bigint").alias("order")
    return rows.select("stream", "seq", "timestamp", "subject", order).select("*", "order.*")


@dp.materialized_view
def revenue() -> DataFrame:
    """What each item came to."""
    return spark.read.table("orders").groupBy("item").agg(f.sum("price").alias("revenue"))


@dp.append_flow(target="alerts")
def large_orders() -> DataFrame:
    """Named by stream, sequence and time, so that a repeated run alerts no reader twice."""
    large = spark.readStream.table("orders").where(f.col("price") >= LARGE)
    subject = f.concat(f.lit("alerts."), f.col("item")).alias("subject")
    data = f.to_json("order").cast("binary").alias("data")
    return large.select("stream", "seq", "timestamp", subject, data)
