"""Reads `index.db` of the reference's file store: the range of each block, and removed sequences.

    11, version; uvarint messages, bytes, first sequence, varint its time, uvarint last sequence,
    varint its time; uvarint subjects, of each: uvarint length, subject, uvarint messages, first
    block, last block (before version 4 only of subjects with several messages);
    uvarint blocks, of each: uvarint number, bytes, first sequence, varint time, uvarint last
    sequence, varint time, uvarint removed, [uvarint TTLs, from version 2 on], [uvarint schedules,
    from version 3 on], if any were removed: the set of them; more that is not needed here
    a set: 22, 2; u32 nodes, u32 sequences; of each node: u64 first, 32 u64 of bits, u16

The reference ignores the file if it cannot read it, because the blocks hold most of this; so does
this reader. `archive_v1` calls it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from penstock.api.stream_config import StreamState
from penstock.jetstream.archive.stream_archive import (
    ArchiveExtent,
    InvalidArchive,
    RemovedRange,
    check_extent,
)
from penstock.records.varint import Varints

if TYPE_CHECKING:
    from collections.abc import Iterator

_MAGIC: Final = 11
_VERSION_MAX: Final = 4
_SET_HEAD: Final = bytes((22, 2))
_SET_HEAD_BYTES: Final = 10
_NODE_BITS: Final = 2048
_NODE_BYTES: Final = 8 + _NODE_BITS // 8 + 2


def read_index(data: bytes) -> Iterator[ArchiveExtent | RemovedRange]:
    """Yield the removed sequences, then the stream's totals; nothing if the file is unreadable."""
    try:
        extent, removals = _read(data)
    except (ValueError, InvalidArchive):
        return
    yield from removals
    yield extent


def _read(data: bytes) -> tuple[ArchiveExtent, list[RemovedRange]]:
    if len(data) < 2 or data[0] != _MAGIC or not 0 < data[1] <= _VERSION_MAX:
        raise ValueError("not an index")
    version = data[1]
    numbers = Varints(data, 2)
    messages, size, first_seq = numbers.unsigned(), numbers.unsigned(), numbers.unsigned()
    first_ns, last_seq, last_ns = numbers.signed(), numbers.unsigned(), numbers.signed()
    state = StreamState(
        messages=messages,
        bytes=size,
        first_seq=first_seq,
        first_ts=first_ns,
        last_seq=last_seq,
        last_ts=last_ns,
    )
    check_extent(state)
    for _ in range(numbers.unsigned()):
        _pass_subject(numbers, version)
    removals = []
    for _ in range(numbers.unsigned()):
        removed = _pass_block(numbers, version)
        if removed:
            removals.append(RemovedRange(_read_set(numbers)))
    return ArchiveExtent(state), removals


def _pass_subject(numbers: Varints, version: int) -> None:
    length = numbers.unsigned()
    if not length:
        return
    numbers.take(length)
    messages = numbers.unsigned()
    numbers.unsigned()
    if messages > 1 or version >= _VERSION_MAX:
        numbers.unsigned()


def _pass_block(numbers: Varints, version: int) -> int:
    """Skip a block; return how many of its messages were removed."""
    for _ in range(6):  # a skipped varint has the same length signed or unsigned
        numbers.unsigned()
    removed = numbers.unsigned()
    for since in (2, 3):
        if version >= since:
            numbers.unsigned()
    return removed


def _read_set(numbers: Varints) -> tuple[int, ...]:
    head = numbers.take(_SET_HEAD_BYTES)
    if head[:2] != _SET_HEAD:
        raise ValueError("not a set")
    seqs: list[int] = []
    for _ in range(int.from_bytes(head[2:6], "little")):
        node = numbers.take(_NODE_BYTES)
        first = int.from_bytes(node[:8], "little")
        bits = int.from_bytes(node[8:-2], "little")
        seqs += [first + bit for bit in range(_NODE_BITS) if bits >> bit & 1]
    return tuple(sorted(seqs))
