"""The index of a block says what its records say, and a forged one is refused as a whole."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.store.format.block_header import read_block_header
from penstock.store.index.block_images import (
    begin_block,
    blocks_of,
    image_part,
    live_map,
    replay,
    survey,
)
from penstock.store.index.block_index import BadIndex, load_index, make_index
from penstock.store.index.message_log import MessageLog
from penstock.store.index.removal_index import remove_one

INCARNATION = 3
FUZZ = 3000

ops = st.lists(
    st.tuples(
        st.sampled_from(["append", "append", "append", "gap", "remove", "skip"]),
        st.sampled_from(["a", "a.b", "a.b.c", "x" * 300]),
        st.integers(0, 60),
        st.sampled_from([0, 0, -1, 10**18]),
    ),
    max_size=30,
)


def logged(steps: list[tuple[str, str, int, int]], first_seq: int) -> MessageLog:
    """A log with one block, and some things said about an older one."""
    log = MessageLog(incarnation=INCARNATION, durable=True, first_seq=first_seq)
    log.append("first", b"", b"", 1)
    for clock, (what, subject, n, deadline_ns) in enumerate(steps, 2):
        if what in ("append", "gap"):
            seq = log.last_seq + 1 + n if what == "gap" else 0
            header = b"H" * (n % 3)
            log.append(subject, header, b"p" * n, clock, seq=seq, deadline_ns=deadline_ns)
        elif what == "skip":
            log.skip(log.last_seq + 1 + n, clock)
        else:
            remove_one(log, max(1, log.last_seq - n), clock)
    return log


def parts(log: MessageLog) -> tuple[bytes, bytes]:
    facts = blocks_of(log)[0]
    image = image_part(log, 1, 0, facts.used)
    index = make_index(image, facts.head, INCARNATION, 1, facts.first_seq, live_map(log, 1))
    assert index is not None
    return image, index


def loaded(log: MessageLog, image: bytes, index: bytes) -> tuple[MessageLog, object]:
    facts = blocks_of(log)[0]
    other = MessageLog(incarnation=INCARNATION, durable=True, first_seq=facts.first_seq)
    begin_block(other, facts.first_seq)
    found = load_index(
        other,
        index,
        number=1,
        first_seq=facts.first_seq,
        last_seq=log.last_seq,
        head=facts.head,
        used=len(image),
    )
    return other, found


@given(ops, st.sampled_from([1, 7, 2**40]))
def test_index_loads_as_its_records_replay(
    steps: list[tuple[str, str, int, int]], first_seq: int
) -> None:
    log = logged(steps, first_seq)
    image, index = parts(log)
    by_index, found = loaded(log, image, index)
    scanned = MessageLog(incarnation=INCARNATION, durable=True, first_seq=first_seq)
    header = read_block_header(image)
    assert header is not None
    end = survey(image, header.length, INCARNATION, 1).end
    replayed = replay(scanned, image, header, end=end, last=True)
    for seq in range(first_seq, log.last_seq + 1):
        for other in (by_index, scanned):
            assert other.size_at(seq) == log.size_at(seq)
            assert other.ts_of(seq) == log.ts_of(seq)
    assert by_index.subject_states(">") == scanned.subject_states(">") == log.subject_states(">")
    live = [due for due in replayed.deadlines if log.size_at(due[0])]
    assert found.deadlines == live  # type: ignore[attr-defined]


def test_forged_index_is_refused_or_harmless() -> None:
    steps = [("append", "a", n, 0) for n in range(20)] + [("gap", "b", 9, 5), ("remove", "a", 3, 0)]
    log = logged(steps, 1)
    image, index = parts(log)
    chance = Random(1)
    for _ in range(FUZZ):
        forged = bytearray(index)
        for _ in range(chance.randrange(1, 4)):
            forged[chance.randrange(len(forged))] = chance.randrange(256)
        if chance.random() < 0.3:
            del forged[chance.randrange(len(forged)) :]
        try:
            other, _ = loaded(log, image, bytes(forged))
        except BadIndex:
            continue
        assert other.msgs <= len(index)
        assert other.last_seq <= log.last_seq


def test_nothing_is_loaded_of_index_that_cannot_be() -> None:
    log = logged([("append", "a", 5, 0)], 1)
    image, index = parts(log)
    other = MessageLog(incarnation=INCARNATION, durable=True)
    with pytest.raises(BadIndex):
        load_index(
            other, index, number=1, first_seq=1, last_seq=1, head=72, used=len(image)
        )  # it lists a sequence behind the last
    assert other.msgs == 0
    assert blocks_of(other) == []


def test_damaged_image_has_no_index() -> None:
    log = logged([("append", "a", 5, 0)], 1)
    image = bytearray(parts(log)[0])
    image[80] ^= 1
    assert make_index(image, 72, INCARNATION, 1, 1, b"\1\1") is None
