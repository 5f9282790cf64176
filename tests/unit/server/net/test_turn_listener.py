"""The end of a turn: when the loop waits for a commit, and whom it calls after internal calls."""

from __future__ import annotations

from penstock.broker.router import Router
from penstock.server.net.io_loop import IoLoop
from penstock.server.net.turn_listener import QUICK_NS, SMOOTHING, CommitPace, TurnListener
from penstock.subjects.trie import SubList, Subscription


class CountingListener(TurnListener):
    def __init__(self) -> None:
        super().__init__(CommitPace(), CommitPace())
        self.turns = 0

    def calls_ended(self) -> None:
        self.turns += 1


def test_loop_waits_while_commits_are_quick_on_average() -> None:
    pace = CommitPace()
    assert pace.is_quick
    for _ in range(10 * SMOOTHING):
        pace.took(QUICK_NS)
    assert pace.is_quick
    pace.took(3 * QUICK_NS)
    assert not pace.is_quick


def test_one_very_slow_commit_counts_for_all_that_average_follows() -> None:
    pace = CommitPace()
    pace.took(SMOOTHING * QUICK_NS + SMOOTHING)
    assert not pace.is_quick
    for _ in range(SMOOTHING):
        pace.took(0)
    assert pace.is_quick


def test_loop_waits_for_no_commit_while_threads_use_disk() -> None:
    pace = CommitPace()
    pace.running = 1
    assert not pace.is_quick


def test_listener_is_called_after_internal_subscribers_and_only_then() -> None:
    router, interest, listener = Router(seed=1), SubList(), CountingListener()
    io_loop = IoLoop(router=router, arm=lambda *_: None, write_deadline_ns=10**10)
    io_loop.add_interest(interest)
    io_loop.set_listener(listener)
    turns_seen: list[int] = []
    interest.insert(
        Subscription("a", value=lambda *_: turns_seen.append(listener.turns)), call=True
    )
    io_loop.publish(interest, "b", b"")
    assert listener.turns == 0
    io_loop.publish(interest, "a", b"")
    assert (turns_seen, listener.turns) == ([0], 1)
