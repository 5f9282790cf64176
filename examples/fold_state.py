"""A streaming query with a fold as initial state: `transformWithState` from a fold's cursor.

The fold supplies the value of every key at the cursor as initial state; the query reads the
bucket's stream from the next sequence on. So no change is missed and none is seen twice, and the
history before the cursor is not read. All shards of the fold must have the same cursor, as after a
run of the job `fold`. Requires Spark 4.3, RocksDB as state store, pandas and protobuf, and on a
cluster this file on the workers (`--py-files`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Row
from pyspark.sql import functions as f
from pyspark.sql.streaming import StatefulProcessor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass"
PROVIDER = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


class Changes(StatefulProcessor):
    """Keeps the newest value of every key, and yields what each batch changes."""

    def init(self, handle: Any) -> None:
        self._newest = handle.getValueState("newest", "value binary")

    def handleInitialState(self, key: Any, initialState: Any, timerValues: Any) -> None:
        self._newest.update((initialState.value,))

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        before = self._newest.get()[0] if self._newest.exists() else None
        newest = max(rows, key=lambda row: row.seq)
        self._newest.update((newest.data,))
        yield Row(key=key[0], before=before, now=newest.data)

    def close(self) -> None:
        pass


def changes(spark: SparkSession, url: str, bucket: str, folds: str) -> DataFrame:
    """Return the changes of a bucket after the cursor of its published fold."""
    known = spark.read.format("penstock-fold").load(f"{folds}/{bucket}")
    cursors = [row.cursor for row in known.select("cursor").distinct().collect()]
    if len(cursors) != 1:
        raise ValueError(f"the shards have the cursors {cursors}: run the job fold first")
    rows = (
        spark.readStream.format("jetstream")
        .option("url", url)
        .option("startingSeq", cursors[0] + 1)
        .load(f"KV_{bucket}")
        .withColumn("key", f.expr(f"substring(subject, length('$KV.{bucket}.') + 1)"))
    )
    return rows.groupBy("key").transformWithState(
        Changes(),
        "key string, before binary, now binary",
        "append",
        "None",
        initialState=known.select("key", "value").groupBy("key"),
    )
