"""File work of an API request: run on a disk thread while the request waits.

A handler makes one, yields it, and takes the result when it is resumed. The work must touch nothing
that the event loop may touch meanwhile: files that no other request knows yet, or that the handler
has made sure nothing else uses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class DiskWork(Generic[T]):
    """A call that blocks on the disk."""

    __slots__ = ("_call", "_failure", "_value")

    host = None
    """It waits for no stream's block."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: T | None = None
        self._failure: Exception | None = None

    def run(self) -> None:
        """Do it; on any thread, once."""
        try:
            self._value = self._call()
        except Exception as failure:
            self._failure = failure

    def result(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if self._failure is not None:
            raise self._failure
        return self._value  # type: ignore[return-value]
