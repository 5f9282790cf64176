"""Block images between the log and its files: what is to be written, put back, and replayed.

`replay` takes a block as it was found on disk, adds what is valid to the log, and tells what is
not: a log built from files never holds a record whose checksums do not hold. Which gaps are damage
is decided above, once all blocks are known.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from penstock.records.codec cimport (
    ERASED, FLOOR, MESSAGE, SKIP, RecordView, find_record, make_keys, read_record,
)
from penstock.records.xxh64 cimport xxh64
from penstock.store.recordlog cimport Block, RecordLog
from penstock.subjects.nodes cimport xalloc

import struct
from typing import NamedTuple

from penstock.store.recordlog import BLOCK_MAGIC

cdef enum:
    HEADER_FIXED_BYTES = 64
    HEADER_BYTES_MAX = 16777216
    # of read_record
    VALID = 0
    BLANK = 1
    BAD_HEADER = 2
    BAD_BODY = 3
    CUT_OFF = 4

_HEADER = struct.Struct("<8sIIQQQqQII")


class BlockHeader(NamedTuple):
    """What a block file says of itself."""

    length: int
    incarnation: int
    number: int
    first_seq: int
    created_ns: int
    previous_hash: int
    meta: bytes


class Unwritten(NamedTuple):
    """Bytes of a block's image that its file does not have yet."""

    number: int
    offset: int
    data: bytes


class Replayed(NamedTuple):
    """What a block held. `events` are (kind, first, last) of its range records, in order."""

    records: int
    used: int
    torn: int
    damaged: list[tuple[int, int]]
    events: list[tuple[int, int, int]]
    deadlines: list[tuple[int, int]]


def read_block_header(bytes data not None) -> BlockHeader | None:
    """None if the bytes do not start as a block of ours, undamaged."""
    if len(data) < HEADER_FIXED_BYTES + 8:
        return None
    magic, length, _, incarnation, number, first_seq, created_ns, previous, meta_len, _ = (
        _HEADER.unpack_from(data))
    if (magic != BLOCK_MAGIC or length > min(len(data), HEADER_BYTES_MAX)
            or length < HEADER_FIXED_BYTES + 8 + meta_len):
        return None
    if struct.unpack_from("<Q", data, length - 8)[0] != xxh64(PyBytes_AS_STRING(data), length - 8, 0):
        return None
    meta = data[HEADER_FIXED_BYTES:HEADER_FIXED_BYTES + meta_len]
    return BlockHeader(length, incarnation, number, first_seq, created_ns, previous, meta)


cdef Block* block_numbered(RecordLog log, uint64_t number) noexcept nogil:
    cdef uint32_t i
    for i in range(log.block_last, log.block_first, -1):
        if log.blocks[i - 1].number == number:
            return log.blocks[i - 1]
    return NULL


def has_unwritten(RecordLog log not None) -> bool:
    """Whether the files lack something of the images."""
    cdef uint32_t i = log.block_last
    while i > log.block_first and log.blocks[i - 1].image != NULL:
        i -= 1
        if log.blocks[i].written < log.blocks[i].used:
            return True
    return False


def take_unwritten(RecordLog log not None) -> list[Unwritten]:
    """What the files lack, counted as written from now on."""
    cdef uint32_t i
    cdef Block* block
    pieces = []
    for i in range(log.block_first, log.block_last):
        block = log.blocks[i]
        if block.image != NULL and block.written < block.used:
            pieces.append(Unwritten(block.number, block.written,
                                    block.image[block.written:block.used]))
            block.written = block.used
    return pieces


def image_part(RecordLog log not None, uint64_t number, size_t offset, size_t length) -> bytes:
    """Bytes of a block's image; empty if it is cold."""
    cdef Block* block = block_numbered(log, number)
    if block == NULL or block.image == NULL or offset + length > block.used:
        return b""
    return block.image[offset:offset + length]


def warm_blocks(RecordLog log not None) -> list[tuple[int, int]]:
    """(number, bytes) of every sealed block whose image could be dropped, oldest first."""
    cdef uint32_t i
    cdef Block* block
    found = []
    for i in range(log.block_first, log.block_last):
        block = log.blocks[i]
        if block.sealed and block.image != NULL and block.written == block.used:
            found.append((block.number, block.image_cap))
    return found


def drop_image(RecordLog log not None, uint64_t number) -> None:
    cdef Block* block = block_numbered(log, number)
    if block != NULL and block.sealed:
        free(block.image)
        block.image = NULL
        block.image_cap = 0


def put_image(RecordLog log not None, uint64_t number, bytes data not None) -> None:
    """Puts a block's bytes back; their records are checked as they are read."""
    cdef Block* block = block_numbered(log, number)
    if block == NULL or block.image != NULL:
        return
    if PyBytes_GET_SIZE(data) < <Py_ssize_t>block.used:
        data = data.ljust(block.used, b"\0")       # cut off: what is missing fails its checks
    block.image = <char*>xalloc(block.used)
    block.image_cap = block.used
    memcpy(block.image, PyBytes_AS_STRING(data), block.used)
    block.verified = False


def replay(RecordLog log not None, bytes data not None, header, *, bint last) -> Replayed:
    """Adds a block found on disk. `last`: it is the newest, so its tail may be torn."""
    cdef const char* base = PyBytes_AS_STRING(data)
    cdef size_t end = PyBytes_GET_SIZE(data), at = header.length, used = at, following
    cdef RecordView view
    cdef int verdict
    cdef Block* block
    if header.first_seq <= log.last_seq:
        take_back(log, header.first_seq - 1)
    reach(log, header.first_seq - 1, 0)        # or the next append would come before its block
    block = log.adopt_block(header.number, header.first_seq)
    found = Replayed(0, 0, 0, [], [], [])
    records = torn = 0
    while at < end:
        verdict = read_record(base + at, end - at, &block.keys, &view, True)
        if verdict == VALID or verdict == BAD_BODY:
            if verdict == VALID:
                records += 1
                take_in(log, block, &view, <uint32_t>at, found)
            elif view.kind == MESSAGE and view.seq > log.last_seq:
                found.damaged.append((log.last_seq + 1, view.seq))
                reach(log, view.seq, view.ts)
            at += view.length
            used = at
            continue
        following = find_record(base, at + 8, end, &block.keys)
        if following == end:
            # Nothing valid behind it: space that was never used, or a write that was cut short.
            torn = 0 if verdict == BLANK and is_blank_rest(base, at, end) else end - at
            break
        at = following
    block.used = block.written = used
    block.verified = True
    block.sealed = not last
    if last:
        log.load_active(block, base, used)
    return found._replace(records=records, used=used, torn=torn if last else 0)


cdef int take_in(RecordLog log, Block* block, RecordView* view, uint32_t at, found) except -1:
    """One valid record, into the log."""
    if view.kind != MESSAGE:
        found.events.append((view.kind, view.seq, <uint64_t>view.ts))
        apply_range(log, view)
        return 0
    if view.seq <= log.last_seq or view.seq < block.first_seq:
        found.damaged.append((view.seq, view.seq))
        return 0
    if view.seq > log.last_seq + 1:
        found.damaged.append((log.last_seq + 1, view.seq - 1))
    if view.flags & ERASED:
        reach(log, view.seq, view.ts)
        return 0
    log.add_entry(block, view.seq, view.ts, at, view.length,
                  log.subjects.intern(view.subject, view.subject_len),
                  log.size_of(view.subject_len, view.header_len, view.payload_len))
    if view.deadline_ns:
        found.deadlines.append((view.seq, view.deadline_ns))
    return 0

cdef bint is_blank_rest(const char* base, size_t at, size_t end) noexcept nogil:
    while at < end:
        if base[at] != 0:
            return False
        at += 1
    return True

cdef void reach(RecordLog log, uint64_t last, int64_t ts):
    """Every sequence up to `last` was given out, by then."""
    if last > log.last_seq:
        log.last_seq = last
        if log.msgs == 0:
            log.first_seq = last + 1
    log.last_ts_ns = max(log.last_ts_ns, ts)

cdef void apply_range(RecordLog log, RecordView* view):
    cdef uint64_t seq, first = view.seq, last = <uint64_t>view.ts
    if view.kind == SKIP:
        reach(log, last, view.written_ns)
        log.last_ts_ns = view.written_ns
        return
    if view.kind == FLOOR:
        last = first - 1
        first = 0
        reach(log, last, view.written_ns)
    seq = log.live_from(first)
    while seq and seq <= last:
        log.take_out(seq)
        seq = log.live_from(seq + 1)

cdef void take_back(RecordLog log, uint64_t seq):
    """A block starts at or before the last sequence: the log was cut there, and went on."""
    cdef uint64_t victim = log.live_from(seq + 1)
    while victim:
        log.take_out(victim)
        victim = log.live_from(victim + 1)
    while (log.block_last > log.block_first
            and log.blocks[log.block_last - 1].first_seq > seq):
        log.forget_block(log.block_last - 1)
    log.last_seq = seq
    victim = log.live_before(seq)
    log.last_ts_ns = log.ts_of(victim) if victim else 0
    if log.msgs == 0:
        log.first_seq = seq + 1
