"""The queue of pull requests is bounded, whatever the configuration allows."""

from __future__ import annotations

from penstock.api.pull_request import PullRequest
from penstock.jetstream.consumers.pull_queue import PULLS_WAITING_MAX, Waiting, WaitingQueue


def test_queue_is_full_at_max_waiting() -> None:
    queue = WaitingQueue(2, prioritized=False)
    for reply in "ab":
        assert not queue.is_full
        queue.add(Waiting(reply, PullRequest(), 0))
    assert queue.is_full


def test_server_limits_max_waiting() -> None:
    queue = WaitingQueue(10 * PULLS_WAITING_MAX, prioritized=True)
    for number in range(PULLS_WAITING_MAX):
        assert not queue.is_full
        queue.add(Waiting(str(number), PullRequest(), 0))
    assert queue.is_full
