"""Decides which messages of an interest or work-queue stream no consumer needs any more.

Pure functions over a store and its consumers; the caller removes the messages. They read only the
index, so the result does not depend on which blocks are in memory.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.asset_files import StreamFiles
    from penstock.store.contract import Range, Store

SWEEP_LOOKS: Final = 1_024
"""Messages examined by one slice of a sweep: about two milliseconds."""


def acked_by_all(
    store: Store, consumers: Collection[Consumer], acked: tuple[Range, ...]
) -> tuple[int, ...]:
    """Return those sequences, all finished by one consumer, that no other consumer needs."""
    if len(consumers) == 1:
        # No other consumer can need them, so their subjects are not looked up.
        (only,) = consumers
        return tuple(chain.from_iterable(_let_go(only, *span) for span in acked))
    return tuple(
        seq
        for first, last in acked
        for seq in range(first, last + 1)
        if not _is_needed(store, consumers, seq)
    )


def _let_go(consumer: Consumer, first: int, last: int) -> Iterable[int]:
    seqs = range(first, last + 1)
    return seqs if consumer.has_passed(last) else (seq for seq in seqs if not consumer.holds(seq))


def _is_needed(store: Store, consumers: Collection[Consumer], seq: int) -> bool:
    subject = store.subject_of(seq)
    return subject is not None and any(consumer.needs(seq, subject) for consumer in consumers)


def needed_by_none(
    store: Store,
    consumers: Collection[Consumer],
    first: int,
    last: int,
    *,
    only_wanted: bool = False,
) -> tuple[tuple[int, ...], int]:
    """Run one slice of a sweep: return the unneeded sequences from `first` to `last`, and the
    sequence at which the next slice begins (`last + 1` if the sweep is complete).

    With `only_wanted`, a message that matches no consumer's filters also stays: a consumer for it
    may be created later.
    """
    stop = min([last + 1, *(each.holds_all_from for each in consumers if each.holds_all_from)])
    gone: list[int] = []
    seq = store.next_seq((), first)
    for _ in range(SWEEP_LOOKS):
        if not seq or seq >= stop:
            return tuple(gone), last + 1
        subject = store.subject_of(seq) or ""
        is_kept = only_wanted and not any(each.wants(subject) for each in consumers)
        if not is_kept and not any(each.needs(seq, subject) for each in consumers):
            gone.append(seq)
        seq = store.next_seq((), seq + 1)
    return tuple(gone), seq


def has_unserved(files: StreamFiles | None) -> bool:
    """Whether the disk holds consumers that cannot be served: they may need any message."""
    return files is not None and bool(files.unserved)
