"""File work of an API request, run on a disk thread while the request waits.

A handler creates a `DiskWork`, yields it, and reads the result when it is resumed. Invariant: the
work touches nothing that the event loop may touch at the same time. The handler's duty is to use
only files that no other request knows yet, or files it has made sure nothing else uses.

`FileGate` guards files that work outside of requests uses, too. A handler takes the gate before it
creates its work, and yields a `Vacancy` while other work holds the gate.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

T = TypeVar("T")


class DiskWork(Generic[T]):
    """A call that blocks on the disk."""

    __slots__ = ("_call", "_failure", "_value")

    host = None
    """The work does not wait for a block of any stream."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._value: T | None = None
        self._failure: Exception | None = None

    def run(self) -> None:
        """Run the call, once, on any thread; keep its result or its exception."""
        try:
            self._value = self._call()
        except Exception as failure:
            self._failure = failure

    def result(self) -> T:
        """Return what the call returned, or raise what it raised."""
        if self._failure is not None:
            raise self._failure
        return self._value  # type: ignore[return-value]


class FileGate:
    """Admits one piece of work at a time to some files. Only the event loop calls it."""

    __slots__ = ("_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: list[Callable[[], None]] = []

    def take(self) -> None:
        """Take the gate; it must be free."""
        assert not self.is_taken, "other work on the files is out"
        self.is_taken = True

    def leave(self) -> None:
        """Release the gate after the work has ended, and call those that wait."""
        self.is_taken = False
        waiting, self._waiting = self._waiting, []
        for again in waiting:
            again()

    def when_free(self, again: Callable[[], None]) -> None:
        """Call `again` when the current work has ended."""
        self._waiting.append(again)

    def taken(self) -> Generator[Vacancy, None, None]:
        """Wait until the gate is free, then take it."""
        while self.is_taken:
            yield Vacancy(self)
        self.take()


class Gate(Protocol):
    """What a step may wait for."""

    def when_free(self, again: Callable[[], None]) -> None:
        """Call `again` once, when the step may continue."""


class Vacancy:
    """Yielded by a step that waits until a gate is free."""

    __slots__ = ("gate",)

    host = None

    def __init__(self, gate: Gate) -> None:
        self.gate = gate


FileSteps: TypeAlias = "Generator[DiskWork[None] | Vacancy, None, None]"
"""Part of a handler that yields while it waits for its files; raises StoreError if they fail."""


def run_all(steps: FileSteps) -> None:
    """Run each yielded work here, in order. Blocks."""
    for work in steps:
        assert isinstance(work, DiskWork), "other work on the files is out"
        work.run()
