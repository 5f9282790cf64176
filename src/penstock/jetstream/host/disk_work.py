"""File work of an API request: run on a disk thread while the request waits.

A handler makes one, yields it, and takes the result when it is resumed. The work must touch nothing
that the event loop may touch meanwhile: files that no other request knows yet, or that the handler
has made sure nothing else uses.

`FileGate` is for files that work outside of requests uses, too: a handler takes it before it makes
its work, and yields a `Vacancy` as long as the other work is out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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


class FileGate:
    """Lets one piece of work at a time have some files; the event loop asks, works never do."""

    __slots__ = ("_waiting", "is_taken")

    def __init__(self) -> None:
        self.is_taken = False
        self._waiting: list[Callable[[], None]] = []

    def take(self) -> None:
        """Work on the files is out from now on; it must not be already."""
        assert not self.is_taken, "other work on the files is out"
        self.is_taken = True

    def leave(self) -> None:
        """The work has ended: those that wait may try again."""
        self.is_taken = False
        waiting, self._waiting = self._waiting, []
        for again in waiting:
            again()

    def when_free(self, again: Callable[[], None]) -> None:
        """Call this when the work that is out has ended."""
        self._waiting.append(again)

    def taken(self) -> Generator[Vacancy, None, None]:
        """Take it, as soon as it is free."""
        while self.is_taken:
            yield Vacancy(self)
        self.take()


class Vacancy:
    """A step waits until work that is out on some files has ended."""

    __slots__ = ("gate",)

    host = None

    def __init__(self, gate: FileGate) -> None:
        self.gate = gate


FileSteps: TypeAlias = "Generator[DiskWork[None] | Vacancy, None, None]"
"""A part of a handler that waits for its files, and raises StoreError if they fail."""


def run_all(steps: FileSteps) -> None:
    """Run the works that steps wait for here, one after the other. Blocks."""
    for work in steps:
        assert isinstance(work, DiskWork), "other work on the files is out"
        work.run()
