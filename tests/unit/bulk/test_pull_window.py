"""A window asks for what a range holds, in portions, and never far beyond its end."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.bulk.pull_window import CHUNK_BYTES, CHUNK_RECORDS, PullWindow


def test_two_portions_are_under_way_and_new_one_follows_when_one_arrived() -> None:
    window = PullWindow(100_000, 0, 100_000, mean_bytes=100)
    assert [window.next_request() for _ in range(3)] == [CHUNK_RECORDS, CHUNK_RECORDS, 0]
    window.arrived(CHUNK_RECORDS - 1, CHUNK_RECORDS - 1, 0)
    assert window.next_request() == 0
    window.arrived(CHUNK_RECORDS, CHUNK_RECORDS, 0)
    assert window.next_request() == CHUNK_RECORDS


def test_large_messages_come_in_small_portions() -> None:
    window = PullWindow(1000, 0, 1000, mean_bytes=1 << 20)
    assert window.next_request() == CHUNK_BYTES >> 20
    assert PullWindow(9, 0, 9, mean_bytes=1 << 30).next_request() == 1


def test_sizes_that_were_seen_count_more_than_those_of_stream() -> None:
    window = PullWindow(10_000, 0, 10_000, mean_bytes=1.0)
    window.next_request()
    window.arrived(200, 200, 200 << 20)
    assert window.chunk == CHUNK_BYTES >> 20


def test_requests_cancelled_by_server_are_repeated() -> None:
    window = PullWindow(50, 0, 50)
    assert window.next_request() == 50
    window.arrived(20, 20, 0)
    window.returned(30)
    assert window.next_request() == 30


@given(
    present=st.sets(st.integers(1, 300)),
    stop=st.integers(1, 300),
    miscount=st.integers(-5, 5),
)
def test_everything_comes_and_little_more(present: set[int], stop: int, miscount: int) -> None:
    """A server that delivers what is asked for, whatever was expected."""
    inside = [seq for seq in sorted(present) if seq <= stop]
    window = PullWindow(stop, 0, max(0, len(inside) + miscount))
    waiting = sorted(present)
    got: list[int] = []
    while (count := window.next_request()) and waiting:
        taken, waiting = waiting[:count], waiting[count:]
        got += taken
        window.arrived(len(got), got[-1], 0)
        if got[-1] >= stop:
            break
    assert [seq for seq in got if seq <= stop] == inside
    beyond = len(got) - len(inside)
    assert beyond <= max(1, miscount, 2 * -miscount)
