"""A table of subjects is what the log holds, in order, whatever the size of its slices."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from models.subjects import matches
from penstock.store.index.message_log import MessageLog
from penstock.store.index.removal_index import remove_one, take_span
from penstock.store.index.subject_table import SubjectTable

PATTERNS = ["a.*", "a.>", ">", "*", "a.1", "b", "x.*", "a..b", "*.1"]
subjects = st.lists(
    st.sampled_from([f"a.{n}" for n in range(30)] + ["b", "a", "b.1", "é.1"]), max_size=80
)


@given(
    subjects,
    st.sampled_from(PATTERNS),
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(0, 40),
    st.booleans(),
)
def test_table_is_what_log_holds_in_order(
    stored: list[str], pattern: str, collected: int, paged: int, skipped: int, few: bool
) -> None:
    log = MessageLog(durable=False)
    log.subjects.few = 4096 if few else 0
    for subject in stored:
        log.append(subject, b"", b"", 1)
    for seq in range(3, len(stored), 5):
        remove_one(log, seq, 1)
    held: dict[str, int] = {}
    for seq, subject in enumerate(stored, 1):
        if not (seq % 5 == 3 and seq < len(stored)) and matches(subject, pattern):
            held[subject] = held.get(subject, 0) + 1
    table = SubjectTable(pattern)
    while table.collect(log, collected):
        continue
    assert table.total == len(held)
    assert table.skip(skipped) == min(skipped, len(held))
    found: dict[str, int] = {}
    while page := table.page(paged):
        assert len(page) <= paged
        found |= page
    wanted = sorted(held, key=str.encode)[skipped:]
    assert list(found.items()) == [(subject, held[subject]) for subject in wanted]


def test_log_may_change_between_two_slices() -> None:
    log = MessageLog(durable=False)
    for number in range(100):
        log.append(f"a.{number:02}", b"", b"", 1)
    table = SubjectTable("a.*")
    table.collect(log, 10)
    remove_one(log, 50, 1)
    take_span(log, 0, 100, 1)
    log.append("a.new", b"", b"", 1)
    while table.collect(log, 10):
        continue
    names = list(table.page(1000))
    assert names == [f"a.{number:02}" for number in range(10)]


def test_memory_of_replaced_indexes_is_freed_in_slices() -> None:
    log = MessageLog(durable=False)
    for number in range(10_000):
        log.append(f"a.{number}", b"", b"", 1)
    take_span(log, 0, 10_000, 1)
    assert log.shed(4_000)
    assert log.shed(4_000)
    log.append("a.1", b"", b"", 1)
    assert not log.shed(4_000)
    assert log.subject_states(">") == {"a.1": (10_001, 10_001, 1)}
