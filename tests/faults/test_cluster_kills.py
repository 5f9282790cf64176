"""On a real cluster an executor is killed while it writes, or two attempts write side by side.

A stream is copied into another by a program on a standalone cluster of two workers: every message
must arrive once, whatever came in between. A cluster and a program cost six Java machines, so this
runs with `make faults` and not with every `make test`.
"""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.spark_places import cluster, run, submitting
from support.spark_sinks import make_stream, stored, with_client

if TYPE_CHECKING:
    from collections import Counter

    from nats.aio.client import Client

    from support.servers import ServerUnderTest

ROWS = 800
PROGRAM = Path(__file__).with_name("cluster_victim.py")
HARMS = ("kill", "straggle")
DELIVERIES = ("strict", "exactlyOnce")
CONF = {
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "40",
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.25",
    "spark.speculation.minTaskRuntime": "100ms",
}
LONG_ROUNDS = 2
WINDOW_NS = 3600 * 10**9
"""Of ids: `exactlyOnce` promises nothing to who comes back later than that, however busy he was."""
ROUNDS_MAX = 4
"""Of every harm and delivery; a round costs half a minute."""


def fill(server: ServerUnderTest) -> list[str]:
    make_stream(server, "IN")

    async def publish(client: Client) -> None:
        for number in range(ROWS):
            await client.jetstream().publish("IN.x", b"row %d" % number)

    with_client(server, publish)
    return sorted(f"row {number}" for number in range(ROWS))


def test_killed_executors_and_attempts_side_by_side_store_every_row_once(
    spark_server: ServerUnderTest, tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    if rounds == 1:
        pytest.skip("a cluster takes too long for every test run: make faults")
    rows = fill(spark_server)
    cases = list(itertools.product(HARMS, DELIVERIES)) * min(rounds, ROUNDS_MAX)
    with cluster(tmp_path, workers=2) as master:
        for number, (harm, delivery) in enumerate(cases):
            place = tmp_path / f"{number}"
            place.mkdir()
            make_stream(spark_server, "OUT", allow_atomic=True, duplicate_window=WINDOW_NS)
            words = [*submitting(master, CONF), str(PROGRAM)]
            run([*words, spark_server.url, str(place), delivery, harm], tmp_path)
            assert sorted(one.data for one in stored(spark_server, "OUT")) == rows
            assert int((place / "done").read_text()) >= 2
            tried[f"executors of a cluster: {harm}, {delivery}"] += 1
