"""A checkpoint that an older version kept goes on where it stopped.

The one in tests/golden was written with offsets of version 1, over ten messages in batches of five;
the second batch was planned, and never finished.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from nats.js.errors import NotFoundError

from support.spark import QUERY_SECONDS, Streams

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

    from support.servers import ServerUnderTest

GOLDEN = Path(__file__).parents[1] / "golden" / "spark-checkpoint-1"
STREAM = "EV"
CREATED = re.compile(r'"created": "[^"]*"')


@pytest.fixture
def streams(server: ServerUnderTest) -> Iterator[Streams]:
    """A server with the stream of the checkpoint, and three messages that it has not seen."""
    made = Streams(server.url)
    with contextlib.suppress(NotFoundError):
        made.do(lambda js: js.delete_stream(STREAM))
    made.do(lambda js: js.add_stream(name=STREAM, subjects=[f"{STREAM}.>"]))
    made.fill(STREAM, 13)
    yield made
    made.do(lambda js: js.delete_stream(STREAM))


def kept_for(streams: Streams, spark: SparkSession, place: Path) -> Path:
    """The golden checkpoint, as if the stream of it had been the one that is there now."""
    kept = place / "checkpoint"
    shutil.copytree(GOLDEN, kept)
    fresh = place / "fresh"
    run(spark, streams, fresh, [])
    created = CREATED.search((fresh / "offsets" / "0").read_text())
    assert created is not None
    for file in (kept / "offsets").iterdir():
        file.write_text(CREATED.sub(created[0], file.read_text()))
    return kept


def run(
    spark: SparkSession, streams: Streams, checkpoint: Path, batches: list[tuple[int, list[int]]]
) -> None:
    """Read to the end; what each batch held."""

    def take(rows: DataFrame, number: int) -> None:
        batches.append((number, sorted(row.seq for row in rows.collect())))

    rows = spark.readStream.format("jetstream").option("url", streams.url).load(STREAM)
    writer = rows.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(QUERY_SECONDS), "the query does not end"


def test_checkpoint_of_offsets_1_continues_with_batch_that_was_planned(
    spark: SparkSession, streams: Streams, tmp_path: Path
) -> None:
    batches: list[tuple[int, list[int]]] = []
    run(spark, streams, kept_for(streams, spark, tmp_path), batches)
    assert batches == [(1, [6, 7, 8, 9, 10]), (2, [11, 12, 13])]
