"""Deadline queue: the next deadline of many machines.

Each machine has at most one deadline. The owner calls `note` whenever the deadline may have
changed; only the newest value counts. Moving a deadline to a later time costs nothing until the old
heap entry comes up. The queue reads no clock: the caller passes the time to `due`.
"""

from __future__ import annotations

import heapq
import itertools
from typing import Generic, TypeVar

Machine = TypeVar("Machine")


class DeadlineQueue(Generic[Machine]):
    """Deadlines by machine. Machines are compared by identity."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Machine]] = []
        self._noted: dict[int, int] = {}  # id of the machine -> its deadline
        self._queued: dict[int, int] = {}  # id -> its earliest entry in the heap
        self._ties = itertools.count()

    def note(self, machine: Machine, deadline_ns: int | None) -> None:
        """Set the machine's deadline; None removes it."""
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
        """Remove the machine's deadline. The caller must not note this machine again."""
        self._noted.pop(id(machine), None)

    @property
    def next_ns(self) -> int | None:
        """Return when a machine may be due; never later than the earliest deadline."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ns: int, *, at_most: int | None = None) -> list[Machine]:
        """Return the machines whose deadline has passed, at most `at_most`; the rest stay due.

        A returned machine has no deadline until the caller notes the next one.
        """
        found: list[Machine] = []
        while self._heap and self._heap[0][0] <= now_ns and len(found) != at_most:
            at_ns, _, machine = heapq.heappop(self._heap)
            key = id(machine)
            if self._queued.get(key) != at_ns:
                continue  # superseded by an earlier entry of the same machine
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
