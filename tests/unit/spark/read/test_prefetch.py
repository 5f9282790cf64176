"""Prefetched batches come in order, and prefetching ends with its reader."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from penstock.spark.read.prefetch import BATCHES_AHEAD, ahead

if TYPE_CHECKING:
    from collections.abc import Iterator


def test_all_come_in_order() -> None:
    assert list(ahead(iter(range(1000)))) == list(range(1000))


def test_failure_follows_rows_made_before_it() -> None:
    def failing() -> Iterator[int]:
        yield 1
        yield 2
        raise ValueError("the disk")

    batches = ahead(failing())
    assert [next(batches), next(batches)] == [1, 2]
    with pytest.raises(ValueError, match="the disk"):
        next(batches)


def test_producer_makes_only_few_items_ahead() -> None:
    made: list[int] = []
    far_enough = threading.Event()

    def counted() -> Iterator[int]:
        for number in range(100):
            made.append(number)
            if number == BATCHES_AHEAD:
                far_enough.set()
            yield number

    batches = ahead(counted())
    assert next(batches) == 0
    assert far_enough.wait(30)
    batches.close()  # type: ignore[attr-defined]
    assert len(made) <= BATCHES_AHEAD + 2


def test_reader_that_leaves_closes_what_it_read_from() -> None:
    closed = threading.Event()

    def reading() -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            closed.set()

    batches = ahead(reading())
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert closed.is_set()
    assert not [t for t in threading.enumerate() if t.name == "batches ahead"]
