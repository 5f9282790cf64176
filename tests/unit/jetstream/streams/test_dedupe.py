"""The window of message ids."""

from __future__ import annotations

from penstock.jetstream.streams.dedupe import DuplicateWindow


def test_id_counts_for_window_and_not_longer() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 1, 100)
    assert window.find(b"a", 109) == 1
    assert window.find(b"a", 110) == 0
    assert window.find(b"b", 100) == 0


def test_repeated_id_counts_from_its_last_message() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 1, 100)
    window.add(b"a", 7, 115)
    window.expire(120)
    assert window.find(b"a", 120) == 7


def test_ids_expire_in_time_without_ticks() -> None:
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


def test_window_agrees_with_naive_window() -> None:
    window = DuplicateWindow(1000)
    seen: dict[bytes, tuple[int, int]] = {}
    for at in range(1, 5000):
        msg_id = b"%d" % (at * at % 700)
        expected, ts_ns = seen.get(msg_id, (0, 0))
        assert window.find(msg_id, at) == (expected if at - ts_ns < 1000 else 0)
        if at % 3:
            window.add(msg_id, at, at)
            seen[msg_id] = (at, at)
    window.expire(4999)
    assert len(window) == sum(4999 - ts_ns < 1000 for _, ts_ns in seen.values())


def test_it_keeps_id_of_the_last_message() -> None:
    window = DuplicateWindow(0)
    for msg_id in (b"", b"a", b"longer", b"b", b""):
        window.last_id = msg_id
        assert window.last_id == msg_id


def test_no_window_remembers_nothing() -> None:
    window = DuplicateWindow(0)
    window.add(b"a", 1, 100)
    assert (len(window), window.find(b"a", 100)) == (0, 0)


def test_another_window_checks_old_ids_again() -> None:
    window = DuplicateWindow(10)
    window.add(b"a", 1, 100)
    window.window_ns = 50
    assert window.find(b"a", 140) == 1
    window.window_ns = 0
    assert window.find(b"a", 101) == 0
