"""Inspects the files of a store, block by block, and changes none of them.

`read_block` reports what a block file holds and which of its bytes are damaged; it reads every
byte, including those that opening a store takes from the footer unchecked. `look_into` opens the
whole store on an OverlayDisk and reports what a server would find. `copy_store` writes every
readable message into another store, which removes the damage. All work on one block or one batch
at a time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from penstock.records.record_codec import RecordKeys, scan
from penstock.store.block_file import (
    TRAILER_BYTES,
    BlockFile,
    Form,
    find_header,
    image_of,
    number_of,
    read_footer,
    read_trailer,
    salvaged_header,
)
from penstock.store.contract import Cold
from penstock.store.filestore import FileStore
from penstock.store.format.block_frames import Binding
from penstock.store.tools.readonly_disk import OverlayDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.store.contract import StoreState
    from penstock.store.format.encryption import DataKey
    from penstock.store.io.disk import Disk
    from penstock.store.store_recovery import Recovery

MESSAGE: Final = 1
ERASED: Final = 1
COPY_BATCH: Final = 1000
"""Messages that `copy_store` writes between two syncs."""
FETCHES_MAX: Final = 3


class BlockFault(NamedTuple):
    """Bytes of a file that are not what was written there."""

    start: int
    stop: int
    what: str


@dataclass(frozen=True, slots=True)
class BlockReport:
    """What a block file holds. `faults` is empty if every byte is valid."""

    name: str
    number: int
    file_bytes: int
    form: str
    sealed: bool
    compressed: bool
    encrypted: bool
    first_seq: int
    last_seq: int
    messages: int
    other_records: int
    faults: tuple[BlockFault, ...] = ()
    tail: BlockFault | None = None
    """Bytes after the last record that are neither blank nor a footer: an interrupted write in
    the newest block, damage in any other."""


@dataclass(frozen=True, slots=True)
class StoreReport:
    """A store as a server would find it."""

    state: StoreState
    recovery: Recovery
    damaged: tuple[tuple[int, int], ...]
    """Sequences that were durable and cannot be read."""
    subjects: dict[str, int]
    """Number of messages by subject."""


def block_names(disk: Disk) -> list[str]:
    """Return the block files of a directory, sorted by number."""
    numbered = [(number_of(name), name) for name in disk.files()]
    return [name for number, name in sorted((n, name) for n, name in numbered if n is not None)]


def origin_of(disk: Disk) -> tuple[int, bytes] | None:
    """Return the stream that the blocks belong to (incarnation, description), from the first
    valid header."""
    for name in block_names(disk):
        file = disk.open(name, writable=False)
        try:
            header = find_header(disk, file, disk.size(file))
        finally:
            disk.close_file(file)
        if header is not None:
            return header.incarnation, header.meta
    return None


# ------------------------------------------------------------------------ one block


def read_block(
    disk: Disk, name: str, incarnation: int, keys: Mapping[int, DataKey]
) -> BlockReport | None:
    """Read a whole block file; return None if nothing in it belongs to this stream."""
    number = number_of(name)
    assert number is not None
    binding = Binding(incarnation, number)
    found, raw = _found(disk, name, binding, keys)
    if found is None:
        return None
    image = image_of(raw, found.header, binding, keys, f"{disk.path}/{name}")
    end = found.trailer.used if found.trailer is not None else len(image.data)
    tally = _Tally(plain=found.header.form == Form.PLAIN)
    tally.count(image.data[:end], found.header.length, binding)
    faults = list(tally.faults)
    if found.header_damaged:
        faults.insert(0, BlockFault(0, found.header.length, "bad block header"))
    if image.damaged:
        faults.append(BlockFault(found.header.length, found.size, "bad frames"))
    if found.trailer is None and _has_bad_footer(disk, name, found, binding):
        faults.append(BlockFault(found.size - TRAILER_BYTES, found.size, "bad footer index"))
    compression, key_number = found.stored
    return BlockReport(
        name=name,
        number=number,
        file_bytes=found.size,
        form=Form(found.header.form).name.lower(),
        sealed=found.trailer is not None,
        compressed=bool(compression),
        encrypted=bool(key_number) or found.header.form == Form.FRAMES,
        first_seq=found.header.first_seq,
        last_seq=tally.last_seq,
        messages=tally.messages,
        other_records=tally.others,
        faults=tuple(faults),
        tail=tally.tail,
    )


def _found(
    disk: Disk, name: str, binding: Binding, keys: Mapping[int, DataKey]
) -> tuple[BlockFile | None, bytes]:
    file = disk.open(name, writable=False)
    try:
        size = disk.size(file)
        raw = disk.pread(file, size, 0)
        header = find_header(disk, file, size)
        damaged = header is None or header.number != binding.block
        if damaged:
            header = salvaged_header(raw, read_trailer(disk, file, size, binding), binding)
        if header is None or header.incarnation != binding.incarnation:
            return None, raw
        found = BlockFile(name, binding.block, header, size, header_damaged=damaged)
        read_footer(disk, file, found, binding, keys)
    finally:
        disk.close_file(file)
    return found, raw


def _has_bad_footer(disk: Disk, name: str, found: BlockFile, binding: Binding) -> bool:
    """Return whether the trailer is valid; the caller knows that its index is not."""
    file = disk.open(name, writable=False)
    try:
        return read_trailer(disk, file, found.size, binding) is not None
    finally:
        disk.close_file(file)


@dataclass(slots=True)
class _Tally:
    """Counts the records of an image. Places are file offsets only if the file is plain."""

    plain: bool
    messages: int = 0
    others: int = 0
    last_seq: int = 0
    faults: list[BlockFault] = field(default_factory=list)
    tail: BlockFault | None = None

    def count(self, image: bytes, start: int, binding: Binding) -> None:
        records = scan(RecordKeys(*binding), image, start)
        for at, length, verdict, kind, flags, seq, _ts, _parts in records:
            if verdict == "valid":
                self._valid(kind, flags, seq)
            elif verdict != "blank":
                self._not_valid(BlockFault(at, at + length, verdict), at + length == len(image))

    def _valid(self, kind: int, flags: int, seq: int) -> None:
        if kind == MESSAGE:
            self.messages += not flags & ERASED
            self.last_seq = max(self.last_seq, seq)
        else:
            self.others += 1

    def _not_valid(self, fault: BlockFault, at_the_end: bool) -> None:
        if at_the_end and fault.what != "bad body":
            self.tail = fault
        else:
            self.faults.append(fault if self.plain else fault._replace(what=f"{fault.what}, plain"))


# ------------------------------------------------------------------------ the whole store


def look_into(
    disk: Disk, incarnation: int, options: dict[str, Any], *, read_all: bool
) -> StoreReport:
    """Return the store as a server would find it; nothing on disk changes. Raises StoreError.

    With `read_all`, read every message first: a footer records where the messages are, not
    whether they are undamaged.
    """
    store = FileStore.open(OverlayDisk(disk), incarnation=incarnation, noise=bytes, **options)
    start = 0
    while read_all and (message := _next(store, start)) is not None:
        start = message.seq + 1
    state = store.state()
    subjects = {subject: one.msgs for subject, one in store.subject_states().items()}
    return StoreReport(state, store.recovery, state.damaged, subjects)


def copy_store(source: FileStore, target: FileStore) -> Iterator[int]:
    """Copy every readable message into an empty store, with its sequence and deadline, and skip
    the sequences of the others; yield the number of messages copied so far."""
    copied = 0
    last_ts_ns = source.state().last_ts_ns
    start = 0
    while (message := _next(source, start)) is not None:
        target.append(
            message.subject,
            message.header,
            message.payload,
            message.ts_ns,
            seq=message.seq,
            ttl_ns=source.ttl_ns(message.seq),
        )
        start = message.seq + 1
        copied += 1
        if copied % COPY_BATCH == 0:
            _sync_all(target)
            yield copied
    first, last = target.state().last_seq + 1, source.state().last_seq
    if first <= last:
        target.skip(first, last, last_ts_ns)
    _sync_all(target)
    yield copied


def _next(store: FileStore, start: int) -> Any:
    for _ in range(FETCHES_MAX):
        found = store.next_match((), start)
        if not isinstance(found, Cold):
            return found
        work = store.fetch(found)
        work.run()
        store.fetched(work)
    raise AssertionError("a fetched block is still cold")


def _sync_all(store: FileStore) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)
