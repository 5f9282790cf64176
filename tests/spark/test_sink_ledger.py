"""Attempts at the same partition, side by side or one after the other: the ledger lets one through.

No Spark here: attempts are interleaved as a speculating cluster may do.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from penstock.spark.options import parse
from penstock.spark.write.sink_ids import RowIds
from penstock.spark.write.sink_options import SinkOptions
from penstock.spark.write.sink_rows import RowLayout
from penstock.spark.write.worker_publisher import SinkError, WorkerPublisher, publisher_to
from penstock.spark.write.write_ledger import WriteLedger
from support.spark_sinks import make_stream, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.spark.write.sink_rows import SinkRows
    from support.servers import ServerUnderTest

LEDGER = "ledger.OUT.q.0"
ROWS = 60
LAYOUT = RowLayout(subject="OUT.a", ids=RowIds(), has_headers=False)


@pytest.fixture
def outlets(server: ServerUnderTest) -> Iterator[tuple[WorkerPublisher, WorkerPublisher]]:
    make_stream(server, "OUT", allow_atomic=True)
    options = parse(SinkOptions, {"url": server.url, "stream": "OUT"})
    with publisher_to(options, "OUT") as one, publisher_to(options, "OUT") as two:
        yield (
            WorkerPublisher(one, {"name": "OUT"}, "$JS.API"),
            WorkerPublisher(two, {"name": "OUT"}, "$JS.API"),
        )


def rows(start: int, stop: int) -> SinkRows:
    return LAYOUT.rows(pa.record_batch({"data": [f"{row}" for row in range(start, stop)]}))


class Attempt:
    """Writes the partition in pieces of a size of its own."""

    def __init__(self, out: WorkerPublisher, size: int, batch: int = 0) -> None:
        self._ledger = WriteLedger(out, LEDGER, batch)
        self._size = size
        self._at = 0

    def step(self) -> bool:
        """Write a piece; whether there is another."""
        stop = min(self._at + self._size, ROWS)
        self._ledger.write(rows(self._at, stop), is_last=stop == ROWS)
        self._at = stop
        return stop < ROWS


@pytest.mark.parametrize("seed", range(4))
def test_attempts_side_by_side_store_every_row_once_and_in_order(
    server: ServerUnderTest, outlets: tuple[WorkerPublisher, WorkerPublisher], seed: int
) -> None:
    chance = random.Random(seed)
    running = [Attempt(out, chance.randint(3, 20)) for out in outlets]
    while running:
        one = chance.choice(running)
        if not one.step():
            running.remove(one)
    assert [one.data for one in stored(server, "OUT")] == [f"{row}" for row in range(ROWS)]


def test_attempt_that_comes_after_later_batch_fails_and_writes_nothing(
    server: ServerUnderTest, outlets: tuple[WorkerPublisher, WorkerPublisher]
) -> None:
    straggler = Attempt(outlets[0], 10, batch=4)
    straggler.step()
    for batch in (4, 5):
        attempt = Attempt(outlets[1], 20, batch)
        while attempt.step():
            pass
    before = len(stored(server, "OUT"))
    with pytest.raises(SinkError, match="up to batch 5 of this query, and this is batch 4"):
        straggler.step()
    assert len(stored(server, "OUT")) == before == 2 * ROWS


def test_other_rows_in_place_of_those_counted_are_refused(
    server: ServerUnderTest, outlets: tuple[WorkerPublisher, WorkerPublisher]
) -> None:
    Attempt(outlets[0], 10).step()
    other = WriteLedger(outlets[1], LEDGER, 0)
    with pytest.raises(SinkError, match="rows now come differently"):
        other.write(rows(5, 40), is_last=False)
    assert len(stored(server, "OUT")) == 10


@pytest.mark.parametrize(("first", "then"), [(20, 10), (10, 20)])
def test_fewer_or_more_rows_than_finished_partition_had_are_refused(
    outlets: tuple[WorkerPublisher, WorkerPublisher], first: int, then: int
) -> None:
    WriteLedger(outlets[0], LEDGER, 0).write(rows(0, first), is_last=True)
    with pytest.raises(SinkError, match="rows now come differently"):
        WriteLedger(outlets[1], LEDGER, 0).write(rows(0, then), is_last=True)
