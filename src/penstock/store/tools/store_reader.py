"""Reads the messages of a store from its files, one block at a time, in independent readers.

`plan_read` opens the log as a server would, on an OverlayDisk, and returns the live sequences of
each block. This needs all blocks, since later blocks record removals. `read_block` then needs only
one block's plan and its file, in any process. A plan consists of plain values. No process may write
to the store between the two calls; a caller with a path can check the file's size and time.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.base.sequences import SEQ_MAX
from penstock.records.record_codec import RecordKeys
from penstock.records.record_columns import block_columns
from penstock.store.block_file import Form, header_at, read_image
from penstock.store.format.block_frames import Binding
from penstock.store.format.data_keys import open_keys
from penstock.store.format.end_marker import EndMark
from penstock.store.index.block_images import block_facts, live_map
from penstock.store.index.message_log import MessageLog
from penstock.store.store_recovery import Opening
from penstock.store.tools.readonly_disk import OverlayDisk

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from penstock.records.record_columns import RecordColumns
    from penstock.store.contract import Range
    from penstock.store.format.encryption import DataKey, ServerKey
    from penstock.store.io.disk import Disk

_PACKED_EFFORT: Final = 1
"""zlib level: live maps are long runs, which every level compresses well."""


class BlockPlan(NamedTuple):
    """What to read of one block file. `live` is compressed: one byte for every sequence from
    `first_seq` on; empty if all of them are live."""

    name: str
    number: int
    incarnation: int
    form: int
    head: int
    used: int
    first_seq: int
    sequences: int
    messages: int
    live: bytes

    def live_map(self) -> bytes:
        return zlib.decompress(self.live) if self.live else b"\1" * self.sequences


@dataclass(slots=True)
class StorePlan:
    """What a store holds, and what the log reports as unreadable."""

    blocks: list[BlockPlan] = field(default_factory=list)
    damaged: tuple[Range, ...] = ()
    """Sequences that were durable and are missing."""
    unreadable: tuple[str, ...] = ()
    """Block files without any usable record."""
    cut_short: bool = False
    """Whether the log once continued after its last block."""
    first_seq: int = 0
    last_seq: int = 0


def data_keys(disk: Disk, incarnation: int, key: ServerKey | None) -> dict[int, DataKey]:
    """Return the keys that blocks are read with; empty if the store is not encrypted."""
    return open_keys(OverlayDisk(disk), incarnation, key, (), None, bytes)


def plan_read(
    disk: Disk,
    incarnation: int,
    keys: Mapping[int, DataKey],
    *,
    first: int = 0,
    last: int = SEQ_MAX,
) -> StorePlan:
    """Return the blocks to read for the sequences `first` to `last`. Changes nothing on disk."""
    overlay = OverlayDisk(disk)
    log = MessageLog(incarnation=incarnation, meta=b"", durable=True)
    end = EndMark(overlay, incarnation)
    opening = Opening(overlay, log, incarnation, keys, 0, end.found)
    try:
        opening.run()
    finally:
        end.close()
    found = opening.recovery
    blocks = [
        _plan_block(log, number, file.name, file.header.form, first, last)
        for number, file in sorted(opening.files.items())
    ]
    return StorePlan(
        blocks=[block for block in blocks if block is not None],
        damaged=_within(found.damaged, first, last),
        unreadable=found.unreadable,
        cut_short=found.cut_short,
        first_seq=log.first_seq,
        last_seq=log.last_seq,
    )


def _within(ranges: tuple[Range, ...], first: int, last: int) -> tuple[Range, ...]:
    return tuple((max(a, first), min(b, last)) for a, b in ranges if a <= last and b >= first)


def _plan_block(
    log: MessageLog, number: int, name: str, form: int, first: int, last: int
) -> BlockPlan | None:
    """Return the plan of a block; None if it holds no wanted message."""
    facts = block_facts(log, number)
    if facts is None:
        return None
    whole = live_map(log, number)
    start = min(max(first - facts.first_seq, 0), len(whole))
    stop = min(max(last + 1 - facts.first_seq, start), len(whole))
    live = whole[start:stop]
    messages = live.count(1)
    if not messages:
        return None
    packed = b"" if messages == len(live) else zlib.compress(live, _PACKED_EFFORT)
    return BlockPlan(
        name=name,
        number=number,
        incarnation=log.incarnation,
        form=form,
        head=facts.head,
        used=facts.used,
        first_seq=facts.first_seq + start,
        sequences=len(live),
        messages=messages,
        live=packed,
    )


def read_block(
    disk: Disk, plan: BlockPlan, keys: Mapping[int, DataKey], *, rows_max: int, bytes_max: int
) -> Iterator[RecordColumns]:
    """Yield the valid live messages of a block in batches. Damaged messages are left out, so that
    fewer than `plan.messages` may come."""
    binding = Binding(plan.incarnation, plan.number)
    header = header_at(plan.head, Form(plan.form), binding, plan.first_seq)
    image = read_image(disk, plan.name, header, binding, keys).data
    live = plan.live_map()
    record_keys = RecordKeys(*binding)
    place, end = plan.head, min(plan.used, len(image))
    while place < end:
        columns = block_columns(
            record_keys, image, place, end, live, plan.first_seq,
            rows_max=rows_max, bytes_max=bytes_max,
        )  # fmt: skip
        place = columns.place
        if columns.rows:
            yield columns


def missing_ranges(plan: BlockPlan, seen: Iterable[int]) -> list[Range]:
    """Return the live sequences of a block that are not in `seen`, as ranges."""
    live = bytearray(plan.live_map())
    for seq in seen:
        live[seq - plan.first_seq] = 0
    found: list[Range] = []
    at = live.find(1)
    while at >= 0:
        stop = live.find(0, at)
        stop = len(live) if stop < 0 else stop
        found.append((plan.first_seq + at, plan.first_seq + stop - 1))
        at = live.find(1, stop)
    return found
