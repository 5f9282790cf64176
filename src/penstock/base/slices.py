"""Sliced computations: generators that yield where other clients may be served.

A sliced computation yields None between slices and returns its result. `finish` runs one without
pauses, for callers that block no client: tests, tools, the start of the server.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Sliced: TypeAlias = Generator[None, None, T]
"""A computation that yields between slices and returns a T."""


def finish(steps: Generator[object, None, T]) -> T:
    """Run a sliced computation to its end; return its result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
