"""Retention helpers: the store's limits from a configuration, and merging of removal results.

The store enforces limits, discard policy and age. The planner checks interest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api.stream_config import Discard
from penstock.store.contract import Limits, Range, Removed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.api.stream_config import StreamConfig


def limits_of(cfg: StreamConfig) -> Limits:
    """Return the store limits that a configuration sets."""
    discard_new = cfg.discard is Discard.NEW
    return Limits(
        msgs_max=cfg.max_msgs,
        bytes_max=cfg.max_bytes,
        age_ns_max=cfg.max_age,
        per_subject_max=cfg.max_msgs_per_subject,
        discard_new=discard_new,
        discard_new_per_subject=discard_new and cfg.discard_new_per_subject,
    )


def merged(one: Removed, other: Removed) -> Removed:
    """Merge the results of two calls that removed different messages."""
    if not other.msgs:
        return one
    if not one.msgs:
        return other
    seqs = _joined(sorted(one.seqs + other.seqs))
    return Removed(one.msgs + other.msgs, one.bytes + other.bytes, seqs)


def spans_of(seqs: Iterable[int]) -> list[Range]:
    """Convert ascending sequences to ranges of consecutive ones."""
    spans: list[Range] = []
    for seq in seqs:
        if spans and spans[-1][1] + 1 == seq:
            spans[-1] = (spans[-1][0], seq)
        else:
            spans.append((seq, seq))
    return spans


def together(parts: list[Removed]) -> Removed:
    """Merge the results of any number of calls, as `merged`."""
    if len(parts) == 1:
        return parts[0]
    seqs = _joined(sorted(each for part in parts for each in part.seqs))
    return Removed(sum(part.msgs for part in parts), sum(part.bytes for part in parts), seqs)


def _joined(ranges: list[Range]) -> tuple[Range, ...]:
    joined: list[Range] = []
    for first, last in ranges:
        # A range may span sequences that another call removed.
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    return tuple(joined)
