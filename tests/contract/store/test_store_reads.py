"""Questions: by sequence, by subject, by filter, by time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.store.contract import Missing, SubjectState
from support.messages import live, put
from support.stores import Step

if TYPE_CHECKING:
    from support.stores import Driven


@pytest.fixture
def filled(store: Driven) -> Driven:
    """a.1:1 b.1:2 (a.1:3) a.2:4 b.1:5 a.3:6, the third removed."""
    put(store, "a.1 b.1 a.1 a.2 b.1 a.3")
    store.remove(3)
    return store


@pytest.mark.parametrize("seq", [0, 3, 7, 2**63, 2**64 - 1])
def test_missing_message_is_not_found(filled: Driven, seq: int) -> None:
    assert filled.load(seq) is Missing.ABSENT


@pytest.mark.parametrize(
    ("subject", "seq"), [("a.1", 1), ("b.1", 5), ("a.*", 6), ("b.>", 5), (">", 6), ("*.2", 4)]
)
def test_last_by_filter_is_the_newest_match(filled: Driven, subject: str, seq: int) -> None:
    assert filled.load_last(subject) == filled.load(seq)


@pytest.mark.parametrize("subject", ["c", "a", "a.1.x", "*", "c.>"])
def test_last_without_match_is_none(filled: Driven, subject: str) -> None:
    assert filled.load_last(subject) is Missing.ABSENT


@pytest.mark.parametrize(
    ("subject", "bound", "seq"),
    [("b.1", 4, 2), ("b.1", 2, 2), ("a.*", 3, 1), (">", 5, 5), (">", 3, 2), ("b.1", 99, 5)],
)
def test_last_up_to_sequence_is_the_newest_before_it(
    filled: Driven, subject: str, bound: int, seq: int
) -> None:
    assert filled.load_last(subject, at_or_before=bound) == filled.load(seq)


@pytest.mark.parametrize(("subject", "bound"), [("b.1", 1), ("a.2", 3), (">", 0)])
def test_last_before_the_first_is_none(filled: Driven, subject: str, bound: int) -> None:
    assert filled.load_last(subject, at_or_before=bound) is Missing.ABSENT


@pytest.mark.parametrize(
    ("filters", "seqs"),
    [
        ((), [1, 2, 4, 5, 6]),
        ((">",), [1, 2, 4, 5, 6]),
        (("a.*",), [1, 4, 6]),
        (("a.1", "b.>"), [1, 2, 5]),
        (("a.1", "a.*", "a.1"), [1, 4, 6]),
        (("*.1",), [1, 2, 5]),
        (("a.2",), [4]),
        (("a",), []),
        (("c", "d.>"), []),
    ],
)
def test_next_and_pending_match_filters(
    filled: Driven, filters: tuple[str, ...], seqs: list[int]
) -> None:
    assert live(filled, *filters) == seqs
    for start in range(8):
        assert filled.num_pending(start, filters) == sum(seq >= start for seq in seqs)


@pytest.mark.parametrize(
    ("filters", "start", "count"),
    [
        ((), 0, 4),
        ((">",), 0, 4),
        (("a.*",), 0, 3),
        (("a.*", "a.1"), 0, 3),
        ((), 5, 2),
        (("b.1",), 5, 1),
        (("b.1",), 6, 0),
        (("a.1",), 2, 0),
    ],
)
def test_pending_of_last_per_subject_counts_subjects(
    filled: Driven, filters: tuple[str, ...], start: int, count: int
) -> None:
    assert filled.num_pending(start, filters, last_per_subject=True) == count


def test_nothing_is_found_beyond_the_end(filled: Driven) -> None:
    assert filled.next_match((), 7) is None
    assert filled.next_match((), 2**64 - 1) is None
    assert filled.num_pending(2**64 - 1, ()) == 0


@pytest.mark.parametrize(
    ("ts_ns", "seq"),
    [
        (0, 1),
        (10, 1),
        (11, 2),
        (20, 2),
        (21, 4),
        (30, 4),
        (60, 6),
        (61, 7),
        (2**63, 7),
        (-(10**19), 1),
    ],
)
def test_time_finds_the_first_live_message_not_older(filled: Driven, ts_ns: int, seq: int) -> None:
    assert filled.seq_at_time(ts_ns) == seq


def test_of_equal_times_the_first_message_is_found(store: Driven) -> None:
    for ts_ns in (10, 20, 20, 20, 30):
        store.append("a", b"", b"", ts_ns)
    assert store.seq_at_time(20) == 2
    store.remove(2)
    assert store.seq_at_time(20) == 3


def test_in_empty_store_any_time_finds_the_next_sequence(store: Driven) -> None:
    assert store.seq_at_time(0) == 1
    put(store, "a a")
    store.purge()
    assert store.seq_at_time(0) == 3


def test_only_subjects_with_messages_have_states(filled: Driven) -> None:
    assert filled.subject_states() == {
        "a.1": SubjectState(1, 1, 1),
        "a.2": SubjectState(4, 4, 1),
        "a.3": SubjectState(6, 6, 1),
        "b.1": SubjectState(2, 5, 2),
    }
    assert set(filled.subject_states("a.*")) == {"a.1", "a.2", "a.3"}
    assert filled.subject_states("b.1") == {"b.1": SubjectState(2, 5, 2)}
    assert filled.subject_states("c.>") == {}
    assert filled.state().num_subjects == 4
    filled.remove(1)
    assert "a.1" not in filled.subject_states()
    assert filled.state().num_subjects == 3


def test_subject_state_is_correct_after_its_ends_are_removed(store: Driven) -> None:
    put(store, "a b a b a b a")
    store.remove(1)
    store.remove(7)
    assert store.subject_states("a") == {"a": SubjectState(3, 5, 2)}
    assert store.load_last("a").seq == 5
    store.remove(3)
    assert store.subject_states("a") == {"a": SubjectState(5, 5, 1)}


def test_many_subjects_are_kept_apart(store: Driven) -> None:
    step = store.step
    for i in range(300):
        store.step = step if i % 20 == 19 else Step.NOTHING  # opened after each would be quadratic
        store.append(f"k.{i % 50}.{i % 3}", b"", str(i).encode(), i)
    assert store.state().num_subjects == 150
    assert store.num_pending(0, ("k.7.*",)) == 6
    assert live(store, "k.7.*") == [8, 58, 108, 158, 208, 258]
    assert store.load_last("k.*.2").payload == b"299"
