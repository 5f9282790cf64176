"""One Spark session for all tests here, and servers with JetStream for them to read and write.

Starting a session costs about ten seconds of CPU, so there is one; a test that needs another
process starts it itself. Without a Java there is nothing to test, and that is said aloud.
"""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

import pytest

from penstock.spark import session
from penstock.spark.java import NoJava, java_home
from support.servers import OURS, implementation, pool, start

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from support.servers import Implementation, ServerPool, ServerUnderTest

__all__ = ["implementation", "pool", "start"]

STORE_FLAGS = ("-js", "-sd", "store")
CORES = 2


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session; it leaves nothing outside its directory."""
    try:
        java_home()
    except NoJava as error:
        pytest.skip(f"SPARK IS NOT TESTED: {error}")
    place = tmp_path_factory.mktemp("spark")
    with warnings.catch_warnings():
        # Spark's own, about sockets and arguments of its libraries.
        warnings.simplefilter("ignore")
        made = session(
            "penstock tests",
            f"local[{CORES}]",
            light=True,
            **{
                "spark.sql.shuffle.partitions": CORES,
                "spark.sql.session.timeZone": "UTC",
                "spark.sql.warehouse.dir": place / "warehouse",
                "spark.local.dir": place / "local",
                "spark.log.level": "ERROR",
                "spark.sql.streaming.metricsEnabled": False,
            },
        )
    yield made
    made.stop()


@pytest.fixture
def server(pool: ServerPool, implementation: Implementation) -> ServerUnderTest:
    """The shared server with JetStream."""
    return pool.get(implementation, flags=STORE_FLAGS)


@pytest.fixture
def ours(pool: ServerPool) -> ServerUnderTest:
    """The same, always Penstock: for what does not depend on the server."""
    return pool.get(OURS, flags=STORE_FLAGS)
