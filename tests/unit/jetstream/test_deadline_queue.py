"""Deadlines of many machines: who is due, and no more of them at a time than asked for."""

from __future__ import annotations

from penstock.jetstream.deadline_queue import DeadlineQueue


class Machine:
    """Told apart by identity."""


def test_those_beyond_bound_are_still_due() -> None:
    deadline_queue: DeadlineQueue[Machine] = DeadlineQueue()
    machines = [Machine() for _ in range(5)]
    for at, machine in enumerate(machines):
        deadline_queue.note(machine, at)
    assert deadline_queue.due(3, at_most=2) == machines[:2]
    assert deadline_queue.next_ns == 2
    assert deadline_queue.due(3, at_most=2) == machines[2:4]
    assert deadline_queue.due(3, at_most=2) == []
    assert deadline_queue.due(9) == machines[4:]
    assert deadline_queue.next_ns is None
