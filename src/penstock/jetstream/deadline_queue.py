"""Who wants to be woken when: the next deadline of many machines, kept cheaply.

Each machine has at most one deadline, and says it anew whenever it may have changed; only the
newest counts. Saying a later one costs nothing until the old one comes up. No clock in here: what
is due is asked with the time.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

Machine = TypeVar("Machine")


class DeadlineQueue(Generic[Machine]):
    """Deadlines by machine. Machines are told apart by identity."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Machine]] = []
        self._noted: dict[int, int] = {}  # id of the machine -> its deadline
        self._queued: dict[int, int] = {}  # id -> its earliest entry in the heap
        self._ties = itertools.count()

    def note(self, machine: Machine, deadline_ns: int | None) -> None:
        """From now on this is the machine's deadline; None: it waits for nothing."""
        key = id(machine)
        if deadline_ns is None:
            self._noted.pop(key, None)
            return
        self._noted[key] = deadline_ns
        queued = self._queued.get(key)
        if queued is None or deadline_ns < queued:
            self._queued[key] = deadline_ns
            heapq.heappush(self._heap, (deadline_ns, next(self._ties), machine))

    def forget(self, machine: Machine) -> None:
        """The machine is gone; it must not be noted again."""
        self._noted.pop(id(machine), None)

    @property
    def next_ns(self) -> int | None:
        """When something may be due; never later than the first true deadline."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ns: int, *, at_most: int | None = None) -> list[Machine]:
        """The machines whose deadline has come, or the first of them; the others are still due.

        Each is without a deadline until it says the next.
        """
        found: list[Machine] = []
        while self._heap and self._heap[0][0] <= now_ns and len(found) != at_most:
            at_ns, _, machine = heapq.heappop(self._heap)
            key = id(machine)
            if self._queued.get(key) != at_ns:
                continue  # an earlier entry took its place
            del self._queued[key]
            noted = self._noted.get(key)
            if noted is None:
                continue
            if noted <= now_ns:
                del self._noted[key]
                found.append(machine)
            else:
                self._queued[key] = noted
                heapq.heappush(self._heap, (noted, next(self._ties), machine))
        return found
