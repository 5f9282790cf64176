"""Files whose checksums hold and whose contents cannot be: damage, never a crash.

Blocks, footers, end marks and consumer states are filled with numbers that no server writes, and
sealed as a server would. A store over such files opens, or says why not by StoreError; what opened
can be read, written, purged, closed and opened again.
"""

from __future__ import annotations

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from penstock.base.sequences import SEQ_MAX
from penstock.jetstream.consumers.state.consumer_deltas import (
    ConsumerState,
    MalformedDelta,
    replay,
    unpack,
)
from penstock.records.record_codec import checksum
from penstock.store.block_file import (
    Form,
    Trailer,
    block_name,
    index_hash,
    pack_trailer,
    padded,
)
from penstock.store.contract import Cold
from penstock.store.errors import StoreError
from penstock.store.filestore import FileStore
from penstock.store.format.block_frames import Binding
from penstock.store.format.block_header import block_header
from penstock.store.format.end_marker import END_FILE, ROLE
from penstock.store.index.block_index import BadIndex, load_index
from penstock.store.index.message_log import MessageLog
from penstock.store.io.slots import SlotFile, state_key
from penstock.testing.sim_disk import SimDisk

INCARNATION = 7
EDGES = (0, 1, 2, 3, 5, 7, 4095, 4097, 2**31, 2**32 - 1, 2**32, SEQ_MAX - 1, SEQ_MAX)
BEYOND = (SEQ_MAX + 1, SEQ_MAX + 2, 2**64 - 2, 2**64 - 1)
numbers = st.one_of(st.integers(0, 20), st.sampled_from(EDGES + BEYOND), st.integers(0, 2**64 - 1))
signed = numbers.map(lambda n: n - 2**64 if n > SEQ_MAX else n)
small = st.one_of(st.integers(0, 64), st.sampled_from((255, 2**16, 2**31, 2**32 - 1)))
_HEAD = struct.Struct("<2sBBIQqHHII")


def seed_of_block(number: int) -> int:
    return checksum(struct.pack("<QQ", INCARNATION, number))


def sealed_record(block: int, fields: tuple[Any, ...], body: bytes) -> bytes:
    """A record with these header fields, both of its checksums right."""
    kind, flags, length, seq, ts, subject, header, payload = fields
    head = _HEAD.pack(b"PR", kind, flags, length, seq, ts, subject, 0, header, payload)
    seed = seed_of_block(block)
    head += struct.pack("<I", checksum(head, seed) & 0xFFFFFFFF)
    return head + body + struct.pack("<Q", checksum(body, checksum(struct.pack("<Q", seq), seed)))


@st.composite
def records(draw: st.DrawFn, block: int) -> bytes:
    """One record: mostly of a right length, with any sequences and sizes."""
    kind = draw(st.sampled_from((1, 1, 1, 2, 3, 4, 5, 6, 0, 7, 255)))
    flags = draw(st.sampled_from((0, 0, 0, 1, 2, 3, 255)))
    body = draw(st.binary(min_size=8, max_size=8)) * draw(st.integers(1, 4))
    length = 48 + len(body)
    if kind == 1:
        subject = draw(st.integers(0, 8))
        sizes = (subject, draw(st.integers(0, 4)), len(body) - 8 - subject)
    else:
        body, sizes, length = body[:8], (0, 0, 8), 56
    if draw(st.integers(0, 4)) == 0:
        sizes = (draw(st.integers(0, 2**16 - 1)), draw(small), draw(small))
    if draw(st.integers(0, 8)) == 0:
        length = draw(small)
    seq, last = draw(numbers), draw(signed)
    sizes = tuple(max(0, size) for size in sizes)
    return sealed_record(block, (kind, flags, length, seq, last, *sizes), body)


@st.composite
def block_files(draw: st.DrawFn, number: int) -> bytes:
    header = block_header(
        INCARNATION,
        number if draw(st.integers(0, 9)) else draw(numbers),
        draw(st.one_of(st.integers(1, 20), numbers)),
        1,
        draw(st.sampled_from((0, 0, 5))),
        b"",
        form=draw(st.sampled_from((0, 0, 0, 0, 1, 2, 3, 2**32 - 1))),
        flags=draw(st.sampled_from((0, 1))),
    )
    image = header + b"".join(draw(st.lists(records(number), max_size=12)))
    if draw(st.booleans()):
        return image + draw(st.sampled_from((b"", bytes(64), b"torn")))
    return image + draw(footers(number, image, len(header)))


@st.composite
def indexes(draw: st.DrawFn) -> bytes:
    """Counts, subjects, entries and events; any of them wrong."""
    names = draw(st.lists(st.binary(max_size=5), max_size=4))
    entries = draw(st.lists(st.lists(numbers, min_size=5, max_size=6), max_size=6))
    events = draw(st.lists(st.tuples(st.integers(0, 8), numbers, numbers, numbers), max_size=4))
    counts = [len(names), len(entries), len(events)]
    if draw(st.integers(0, 5)) == 0:
        counts[draw(st.integers(0, 2))] = draw(small)
    out = bytearray(struct.pack("<III", *counts))
    for name in names:
        out += varint(len(name)) + name
    for seq, *rest in entries:
        out += varint(seq) + bytes((draw(st.integers(0, 255)),))
        for number in rest:
            out += varint(number)
    for kind, *ranges in events:
        out += bytes((kind,)) + b"".join(map(varint, ranges))
    return bytes(out)


def varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes((*out, number))


@st.composite
def footers(draw: st.DrawFn, number: int, image: bytes, head: int) -> bytes:
    index = draw(indexes())
    binding = Binding(INCARNATION, number)
    trailer = Trailer(
        used=len(image) if draw(st.integers(0, 3)) else draw(numbers),
        first_seq=draw(numbers),
        last_seq=draw(numbers),
        last_ts_ns=draw(signed),
        dead_bytes=draw(numbers),
        records=draw(small),
        index_bytes=len(index) if draw(st.integers(0, 5)) else draw(small),
        index_hash=index_hash(index, binding),
        lineage=draw(numbers),
        previous=draw(numbers),
        mark_place=draw(numbers),
        mark_block=draw(numbers),
        head=head if draw(st.integers(0, 5)) else draw(small),
        form=draw(st.sampled_from((0, 0, 0, 1, 2, 9))),
    )
    return index.ljust(padded(len(index)), b"\0") + pack_trailer(trailer, binding)


def opened(disk: SimDisk, *, lazy: bool = False) -> FileStore:
    return FileStore.open(disk, incarnation=INCARNATION, noise=bytes, sync_always=not lazy)


def used(store: FileStore) -> None:
    """Everything that a stream asks of its store."""
    state = store.state(deleted=state_is_small(store))
    assert 0 <= state.first_seq <= state.last_seq + 1 <= SEQ_MAX + 1
    seq, found = 0, 0
    while (record := store.next_match((), seq, unsynced=True)) is not None:
        if isinstance(record, Cold):
            work = store.fetch(record)
            work.run()
            store.fetched(work)
            continue
        assert seq <= record.seq <= SEQ_MAX
        seq, found = record.seq + 1, found + 1
    assert found <= state.msgs
    store.subject_states()
    store.last_of_each((">",))
    store.num_pending(0, ("a.*", ">"))
    if state.last_seq < SEQ_MAX:
        store.append("a.b", b"", b"new", max(state.last_ts_ns, 1))
    if state.last_seq < SEQ_MAX - 10:
        store.skip(store.last_seq + 1, store.last_seq + 5, store.last_ts_ns)
    first = store.state().first_seq
    store.erase(first)
    store.purge(subject="a.>")
    store.purge(keep=1)


def state_is_small(store: FileStore) -> bool:
    return store.state().last_seq - store.state().first_seq < 10_000


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
@example(files=(b"", b""), end=(0, 1, 0), lazy=False)
@given(
    files=st.tuples(block_files(1), block_files(2)),
    end=st.one_of(st.none(), st.tuples(numbers, numbers, numbers)),
    lazy=st.booleans(),
)
def test_blocks_that_cannot_be_are_damage(
    files: tuple[bytes, bytes], end: tuple[int, int, int] | None, lazy: bool
) -> None:
    disk = SimDisk()
    for number, data in enumerate(files, 1):
        file = disk.open(block_name(number), create=True)
        disk.pwrite(file, data, 0)
        disk.fdatasync(file)
        disk.close_file(file)
    if end is not None:
        key = state_key(ROLE, INCARNATION)
        SlotFile.create(disk, END_FILE, key, struct.pack("<QQQ", *end), value_bytes_max=24).close()
    disk.sync_dir()
    for _ in range(2):
        try:
            store = opened(disk, lazy=lazy)
        except StoreError:
            return
        used(store)
        with contextlib.suppress(StoreError):
            store.close()


@settings(max_examples=300, deadline=None)
@given(
    index=indexes(),
    first_seq=numbers,
    last_seq=numbers,
    head=st.integers(0, 200),
    used=st.one_of(st.integers(0, 4096), numbers),
)
def test_indexes_that_cannot_be_are_refused_whole(
    index: bytes, first_seq: int, last_seq: int, head: int, used: int
) -> None:
    log = MessageLog(incarnation=INCARNATION, durable=True)
    before = (log.msgs, log.first_seq, log.last_seq)
    try:
        load_index(
            log, index, number=1, first_seq=first_seq, last_seq=last_seq, head=head, used=used
        )
    except BadIndex:
        assert (log.msgs, log.first_seq, log.last_seq) == before
        return
    assert log.last_seq <= SEQ_MAX
    assert len(log.subject_states(">")) <= log.msgs


checkpoints = st.tuples(*[numbers] * 5, st.integers(0, 3), st.integers(0, 3)).flatmap(
    lambda head: st.lists(
        numbers, min_size=3 * head[5] + 2 * head[6], max_size=3 * head[5] + 2 * head[6]
    ).map(lambda rest: struct.pack(f"<QQQQQII{len(rest)}Q", *head, *rest))
)
changes = st.lists(
    st.one_of(
        st.tuples(st.just("<BQQqI"), st.just(1), numbers, numbers, signed, small),
        st.tuples(st.just("<BQQ"), st.sampled_from((2, 4, 7)), numbers, numbers),
        st.tuples(st.just("<BQ"), st.sampled_from((3, 6)), numbers),
        st.tuples(st.just("<BQqI"), st.just(5), numbers, signed, small),
        st.tuples(st.just("<BQqIQQ"), st.just(8), numbers, signed, st.just(1), numbers, numbers),
        st.tuples(st.just("<BIQQ"), st.just(9), st.just(1), numbers, numbers),
    ),
    max_size=8,
).map(lambda made: b"".join(struct.pack(*each) for each in made))


@settings(max_examples=300, deadline=None)
@given(checkpoint=checkpoints, body=changes)
def test_consumer_states_that_cannot_be_are_malformed(checkpoint: bytes, body: bytes) -> None:
    try:
        state, seq = ConsumerState.decode(checkpoint)
        replay(state, unpack(body))
    except MalformedDelta:
        return
    again, _ = ConsumerState.decode(state.encode(seq))
    assert again == state


@pytest.mark.parametrize("form", list(Form))
def test_header_of_every_form_is_readable(form: Form) -> None:
    """The generator above makes real headers: one that is never read would test nothing."""
    disk = SimDisk()
    file = disk.open(block_name(1), create=True)
    disk.pwrite(file, block_header(INCARNATION, 1, 5, 1, 0, b"", form=form), 0)
    disk.fdatasync(file)
    disk.sync_dir()
    store = opened(disk)
    assert store.recovery.unreadable == ()
    assert store.last_seq == 4
    store.close()
