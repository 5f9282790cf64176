"""Filling a store with few words, a subject per message, at times 10, 20, 30; and what it holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.store.contract import Appended, MessageRecord, Refusal

if TYPE_CHECKING:
    from penstock.store.memstore import MemStore
    from support.stores import Driven

TICK_NS = 10


def put(store: Driven, subjects: str, payload: bytes = b"m") -> list[int | Refusal]:
    """Appends a message per word; answers the sequences they got, or why not."""
    answers: list[int | Refusal] = []
    for subject in subjects.split():
        ts_ns = store.state().last_ts_ns + TICK_NS
        answer = store.append(subject, b"", payload, ts_ns)
        answers.append(answer.seq if isinstance(answer, Appended) else answer)
    return answers


def live(store: Driven, *filters: str) -> list[int]:
    """Sequences of all messages some filter matches, found as a consumer finds them."""
    found = []
    start = 0
    while (message := store.next_match(filters, start)) is not None:
        found.append(message.seq)
        start = message.seq + 1
    return found


def stored_in(store: MemStore) -> dict[int, MessageRecord]:
    """Every message, by sequence."""
    found: dict[int, MessageRecord] = {}
    record = store.next_match((), 0)
    while isinstance(record, MessageRecord):
        found[record.seq] = record
        record = store.next_match((), record.seq + 1)
    return found
