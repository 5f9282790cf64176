"""Which messages of a stream that keeps them for its consumers are needed no more.

Pure questions over a store and the consumers of its stream; whoever asks takes the messages out.
What is not in memory now is left: it is looked at when it is acknowledged, or in the next sweep.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from penstock.store.contract import Cold, Missing

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.consumers.consumer import Consumer
    from penstock.store.contract import Range, Store


def settled_by_all(
    store: Store, consumers: Collection[Consumer], settled: tuple[Range, ...]
) -> tuple[int, ...]:
    """Those of some sequences, settled by one consumer, that no other needs."""
    if len(consumers) == 1:
        # What it settled its filters let through, so nobody has to look for the subject.
        (only,) = consumers
        return tuple(chain.from_iterable(_let_go(only, *span) for span in settled))
    return tuple(
        seq
        for first, last in settled
        for seq in range(first, last + 1)
        if not _is_needed(store, consumers, seq)
    )


def _let_go(consumer: Consumer, first: int, last: int) -> Iterable[int]:
    seqs = range(first, last + 1)
    return seqs if consumer.has_passed(last) else (seq for seq in seqs if not consumer.holds(seq))


def _is_needed(store: Store, consumers: Collection[Consumer], seq: int) -> bool:
    record = store.load(seq)
    if isinstance(record, Missing):
        return False
    if isinstance(record, Cold):
        # Its subject is not at hand. Whoever looks at it next finds it settled.
        return len(consumers) > 1
    return any(consumer.needs(seq, record.subject) for consumer in consumers)


def needed_by_none(
    store: Store, consumers: Collection[Consumer], *, only_wanted: bool = False
) -> tuple[int, ...]:
    """Everything in the stream that no consumer needs.

    With `only_wanted` what no consumer has an interest in stays, too: somebody may come for it.
    """
    gone, seq = [], store.state().first_seq
    while (record := store.next_match((), seq, unsynced=True)) is not None:
        if isinstance(record, Cold):
            break
        is_kept = only_wanted and not any(each.wants(record.subject) for each in consumers)
        if not is_kept and not any(each.needs(record.seq, record.subject) for each in consumers):
            gone.append(record.seq)
        seq = record.seq + 1
    return tuple(gone)
