"""The window of message ids."""

from __future__ import annotations

from penstock.streams.dedupe import DuplicateWindow


def test_an_id_counts_for_the_window_and_not_longer() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 1, 100)
    assert window.find(b"a", 109) == 1
    assert window.find(b"a", 110) == 0
    assert window.find(b"b", 100) == 0


def test_a_repeated_id_counts_from_its_last_message() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 1, 100)
    window.add(b"a", 7, 115)
    window.expire(120)
    assert window.find(b"a", 120) == 7


def test_ids_are_forgotten_in_time_even_if_nobody_ticks() -> None:
    window = DuplicateWindow(10)
    for at in range(10_000):
        window.add(b"%d" % at, at, at)
    assert len(window) == 10


def test_ticking_forgets_all_that_is_old() -> None:
    window = DuplicateWindow(10)
    for at in range(10):
        window.add(b"%d" % at, at, at)
    assert window.next_deadline_ns() == 10
    window.expire(14)
    assert len(window) == 5
    assert window.next_deadline_ns() == 15
    window.expire(100)
    assert window.next_deadline_ns() is None


def test_no_window_remembers_nothing() -> None:
    window = DuplicateWindow(0)
    window.add(b"a", 1, 100)
    assert (len(window), window.find(b"a", 100)) == (0, 0)


def test_another_window_judges_old_ids_anew() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 1, 100)
    window.window_ns = 50
    assert window.find(b"a", 140) == 1
    window.window_ns = 0
    assert window.find(b"a", 101) == 0
