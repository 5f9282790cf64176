"""The example for Spark's Declarative Pipelines runs, and a second run adds only what is new."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from penstock.spark.java import NoJava, java_home
from support.pipelines import tell, url_of

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from support.servers import ServerUnderTest

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines"
RUN_SECONDS = 300
WINDOW_SECONDS = 600


def run(place: Path, url: str) -> None:
    program = Path(sys.executable).with_name("spark-pipelines")
    settings = {
        "spark.sql.catalogImplementation": "hive",  # remembers tables between runs
        "spark.sql.warehouse.dir": str(place / "warehouse"),
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    flags = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    ran = subprocess.run(
        [str(program), *flags, "run", "--spec", "spark-pipeline.yml"],
        cwd=place,
        env={
            **os.environ,
            "NATS_URL": url,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
        },
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]


def test_example_goes_from_stream_to_tables_and_back(ours: ServerUnderTest, tmp_path: Path) -> None:
    try:
        java_home()
    except NoJava as error:
        pytest.skip(f"SPARK IS NOT TESTED: {error}")
    place = tmp_path / "project"
    shutil.copytree(EXAMPLE, place)
    spec = place / "spark-pipeline.yml"
    spec.write_text(spec.read_text().replace("/tmp/penstock-pipeline", str(tmp_path / "state")))

    async def publish(js: JetStreamContext, first: int, stop: int) -> None:
        for n in range(first, stop):
            order = {"item": f"i{n % 3}", "price": n}
            await js.publish("orders.new", json.dumps(order).encode())

    async def make(js: JetStreamContext) -> None:
        await js.add_stream(name="ORDERS", subjects=["orders.>"])
        await js.add_stream(name="ALERTS", subjects=["alerts.>"], duplicate_window=WINDOW_SECONDS)
        await publish(js, 0, 100)

    tell(ours, make)
    run(place, url_of(ours))
    tell(ours, lambda js: publish(js, 100, 103))
    run(place, url_of(ours))
    state = tell(ours, lambda js: js.stream_info("ALERTS")).state
    assert state.messages == 13
    assert pq.read_table(place / "warehouse" / "orders").num_rows == 103
