"""Block images between the log and its files: bytes to write, images to restore, and replay.

`replay` takes an image found on disk, adds its valid records to the log and reports the rest: a log
built from files never holds a record with a wrong checksum. The caller, `store_recovery`, decides
from the place of each hole whether it is damage or was never durable. An image is a header and
records; `block_file` defines how a file stores them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.record_codec cimport (
    BAD_BODY, ERASED, FLOOR, MARK, MESSAGE, MESSAGE_BYTES_MIN, REMOVE, SKIP, VALID, Keys, RecordView,
    erase_record, find_record, make_keys, read_record,
)
from penstock.store.index.block_list cimport ENTRIES_MAX, GAP_MAX, IMAGE_BYTES_MIN, Block
from penstock.store.index.image_memory cimport let_go
from penstock.store.index.record_log cimport RecordLog, grown
from penstock.store.index.removal_index cimport take_out
from penstock.subjects.trie_nodes cimport xalloc

from typing import NamedTuple

cdef size_t NO_HOLE = <size_t>-1


class Unwritten(NamedTuple):
    """Bytes of a block's image that its file does not have yet."""

    number: int
    offset: int
    data: bytes


class Survey(NamedTuple):
    """A first scan of an image: where the last valid record ends, the first sequence named, and
    the last mark: (block, place, durable sequence), or None."""

    end: int
    first_seq: int
    mark: tuple[int, int, int] | None


class Replayed(NamedTuple):
    """The contents of a replayed image.

    `holes` are (place, first, last): sequences whose records should be at that place of the
    image. `events` are (kind, first, last, written) of range records, in order. `torn` counts the
    bytes after `used` that are neither valid nor blank.
    """

    records: int
    used: int
    torn: int
    holes: list[tuple[int, int, int]]
    events: list[tuple[int, int, int, int]]
    deadlines: list[tuple[int, int]]


class BlockFacts(NamedTuple):
    """The current state of a block of the log."""

    number: int
    first_seq: int
    last_seq: int
    last_ts_ns: int
    span: int
    live: int
    live_bytes: int
    dead_bytes: int
    records: int
    head: int
    used: int
    lineage: int
    previous: int
    layout: int
    sealed: bool
    footed: bool
    damaged: bool
    warm: bool
    written: bool


# -------------------------------------------------------------------- blocks of a log

cdef Block* block_numbered(RecordLog log, uint64_t number) noexcept nogil:
    cdef uint32_t i
    for i in range(log.block_last, log.block_first, -1):
        if log.blocks[i - 1].number == number:
            return log.blocks[i - 1]
    return NULL

cdef facts_of(Block* block):
    return BlockFacts(
        block.number, block.first_seq, block.last_seq, block.last_ts, block.nentries, block.live,
        block.live_bytes, block.dead_bytes, block.records, block.head, block.used, block.lineage,
        block.previous, block.layout, bool(block.sealed), bool(block.footed), bool(block.damaged),
        block.image != NULL, block.written == block.used)

def blocks_of(RecordLog log not None) -> list[BlockFacts]:
    """Return the facts of every block, oldest first."""
    cdef uint32_t i
    return [facts_of(log.blocks[i]) for i in range(log.block_first, log.block_last)]

def last_block(RecordLog log not None) -> BlockFacts | None:
    return None if log.block_first == log.block_last else facts_of(log.blocks[log.block_last - 1])

def block_facts(RecordLog log not None, uint64_t number) -> BlockFacts | None:
    cdef Block* block = block_numbered(log, number)
    return None if block == NULL else facts_of(block)

def has_unwritten(RecordLog log not None) -> bool:
    """Return whether the files lack bytes of the images."""
    cdef uint32_t i = log.block_last
    cdef Block* block
    while i > log.block_first:
        i -= 1
        block = log.blocks[i]
        if block.written < block.used:
            return True
        if block.sealed:
            return False        # then all blocks before it are written too
    return False

def take_unwritten(RecordLog log not None) -> list[Unwritten]:
    """Return the bytes that the files lack, and count them as written from now on."""
    cdef uint32_t i, first = log.block_last
    cdef Block* block
    pieces = []
    # Only the newest blocks can lack bytes: all blocks before a written sealed block are written.
    while first > log.block_first and not (log.blocks[first - 1].sealed and
                                           log.blocks[first - 1].written == log.blocks[first - 1].used):
        first -= 1
    for i in range(first, log.block_last):
        block = log.blocks[i]
        if block.image != NULL and block.written < block.used:
            pieces.append(Unwritten(block.number, block.written,
                                    block.image[block.written:block.used]))
            block.written = block.used
    return pieces

def unfooted(RecordLog log not None) -> list[int]:
    """Return the sealed blocks in memory whose files could have a footer but do not."""
    cdef uint32_t i
    cdef Block* block
    found = []
    for i in range(log.block_first, log.block_last):
        block = log.blocks[i]
        if block.sealed and block.image != NULL and not block.footed and not block.damaged:
            found.append(block.number)
    return found

def set_footed(RecordLog log not None, uint64_t number, bint footed) -> None:
    cdef Block* block = block_numbered(log, number)
    if block != NULL:
        block.footed = footed

def set_damaged(RecordLog log not None, uint64_t number) -> None:
    """Mark a block in which something could not be read: it is left unchanged from now on."""
    cdef Block* block = block_numbered(log, number)
    if block != NULL:
        block.damaged = True

def image_part(RecordLog log not None, uint64_t number, size_t offset, size_t length) -> bytes:
    """Return bytes of a block's image; empty if the block is cold."""
    cdef Block* block = block_numbered(log, number)
    if (block == NULL or block.image == NULL or offset > block.used
            or length > block.used - offset):
        return b""
    return block.image[offset:offset + length]

def live_map(RecordLog log not None, uint64_t number) -> bytes:
    """Return a byte for every sequence from the block's first on: 1 if its message is live."""
    cdef Block* block = block_numbered(log, number)
    cdef uint32_t i
    cdef bytearray live
    if block == NULL:
        return b""
    live = bytearray(block.nentries)
    for i in range(block.nentries):
        live[i] = block.entries[i].offset != 0
    return bytes(live)

def warm_blocks(RecordLog log not None) -> list[tuple[int, int]]:
    """Return (number, bytes) of every sealed block whose image could be dropped, oldest first."""
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
    if block != NULL and block.sealed and block.image != NULL:
        let_go(block.image, block.image_cap, &log.spare.image, &log.spare.cap)
        block.image = NULL
        block.image_cap = 0

def put_image(RecordLog log not None, uint64_t number, bytes data not None) -> None:
    """Restore the image of a cold block; its records are checked when they are read."""
    cdef Block* block = block_numbered(log, number)
    if block == NULL or block.image != NULL:
        return
    if PyBytes_GET_SIZE(data) < <Py_ssize_t>block.used:
        data = data.ljust(block.used, b"\0")       # truncated: missing records fail their checks
    block.image = <char*>xalloc(block.used)
    block.image_cap = block.used
    memcpy(block.image, PyBytes_AS_STRING(data), block.used)
    block.verified = False
    block.looks = 0

def move_records(RecordLog log not None, uint64_t number, bytes places not None,
                 bytes image not None, size_t head, uint32_t records) -> None:
    """Use the new image of a rewritten block: `places` has a u32 for each of its sequences.

    Every live record must have a place; records removed in the meantime are dead bytes in it.
    """
    cdef Block* block = block_numbered(log, number)
    cdef const uint32_t* place = <const uint32_t*>PyBytes_AS_STRING(places)
    cdef uint32_t i
    cdef bint warm
    if block == NULL:
        return
    if not fit_places(block, place, PyBytes_GET_SIZE(places) // 4, PyBytes_GET_SIZE(image)):
        raise ValueError(f"block {number} was rewritten without some of its messages")
    warm = block.image != NULL
    free(block.image)
    block.image = NULL
    block.image_cap = 0
    block.dead_bytes = 0
    for i in range(block.nentries):
        if block.entries[i].offset:
            block.entries[i].offset = place[i]
        elif place[i]:
            block.dead_bytes += block.entries[i].length
    block.head = head
    block.used = block.written = PyBytes_GET_SIZE(image)
    block.records = records
    block.layout += 1
    block.footed = True
    if warm:
        put_image(log, number, image)

cdef bint fit_places(Block* block, const uint32_t* place, size_t n, size_t end) noexcept nogil:
    """Return whether every live record has a place in an image of `end` bytes."""
    cdef uint32_t i
    if n < block.nentries:
        return False
    for i in range(block.nentries):
        if block.entries[i].offset and (
                place[i] == 0 or place[i] > end or block.entries[i].length > end - place[i]):
            return False
    return True

def erase_image(RecordLog log not None, uint64_t number, size_t place, uint64_t seq,
                bytes noise not None) -> None:
    """Overwrite the record of an already removed message, as long as `noise`, in an image that
    still has it."""
    cdef Block* block = block_numbered(log, number)
    cdef size_t length = PyBytes_GET_SIZE(noise)
    if (block != NULL and block.image != NULL and length >= MESSAGE_BYTES_MIN
            and place <= block.used and length <= block.used - place):
        erase_record(block.image + place, <uint32_t>length, seq, &block.keys, noise)


# -------------------------------------------------------------------- replaying

def survey(bytes data not None, size_t head, uint64_t incarnation, uint64_t number) -> Survey:
    """Scan an image without a log."""
    cdef const char* base = PyBytes_AS_STRING(data)
    cdef size_t end = PyBytes_GET_SIZE(data), at = head, last = head
    cdef uint64_t first_seq = 0
    cdef RecordView view
    cdef Keys keys
    cdef int verdict
    mark = None
    make_keys(&keys, incarnation, number)
    while at < end:
        verdict = read_record(base + at, end - at, &keys, &view, True)
        if verdict == VALID:
            if view.kind == MARK:
                mark = (view.seq, view.ts, view.written_ns)
            if first_seq == 0 and (view.kind == MESSAGE or view.kind == SKIP):
                first_seq = view.seq
            at += view.length
            last = at
        elif verdict == BAD_BODY:
            at += view.length
        else:
            at = find_record(base, at + 8, end, &keys)
    return Survey(last, first_seq, mark)


def replay(RecordLog log not None, bytes data not None, header, *, size_t end,
           bint last) -> Replayed:
    """Add an image found on disk to the log; `end` is where its last valid record ends.

    `last`: it is the newest block and stays open.
    """
    cdef const char* base = PyBytes_AS_STRING(data)
    cdef size_t at = header.length, hole = NO_HOLE
    cdef RecordView view
    cdef int verdict
    cdef Block* block
    if end > <size_t>PyBytes_GET_SIZE(data) or <size_t>header.length > end:
        raise ValueError("an image ends before its records do")
    start_block(log, header.first_seq)
    block = log.adopt_block(header.number, header.first_seq)
    block.head = header.length
    block.previous = header.previous
    found = Replayed(0, end, 0, [], [], [])
    while at < end:
        verdict = read_record(base + at, end - at, &block.keys, &view, True)
        if verdict == VALID:
            take_in(log, block, &view, at, hole, found)
            if view.kind == MESSAGE:        # its sequence shows which sequences the hole had
                hole = NO_HOLE
            at += view.length
            continue
        hole = min(hole, at)
        if verdict != BAD_BODY:
            at = find_record(base, at + 8, end, &block.keys)
            continue
        if view.kind == MESSAGE and view.seq > log.last_seq:
            found.holes.append((at, log.last_seq + 1, view.seq))
            reach(log, view.seq, view.ts)
            hole = NO_HOLE
        block.damaged = True
        at += view.length
    finish(log, block, data, end, last)
    torn = 0 if is_blank_rest(base, end, len(data)) else len(data) - end
    return found._replace(records=block.records, torn=torn)

cdef int start_block(RecordLog log, uint64_t first_seq) except -1:
    if not 0 < first_seq <= SEQ_MAX + 1:
        raise ValueError(f"no block begins at sequence {first_seq}")
    if first_seq <= log.last_seq:
        take_back(log, first_seq - 1)
    reach(log, first_seq - 1, 0)        # or the next append would get a sequence before its block
    return 0

cdef void finish(RecordLog log, Block* block, bytes data, size_t used, bint last):
    """Keep the image in memory: the block stays open, or still needs a footer."""
    block.used = block.written = used
    block.verified = True
    block.image_cap = max(<size_t>IMAGE_BYTES_MIN, used)
    block.image = <char*>xalloc(block.image_cap)
    memcpy(block.image, PyBytes_AS_STRING(data), used)
    if not last:
        log.seal(block)

cdef int take_in(RecordLog log, Block* block, RecordView* view, size_t at, size_t hole,
                 found) except -1:
    """Add one valid record to the log. `hole`: where the preceding invalid bytes began."""
    block.records += 1
    block.lineage = grown(block.lineage, view.seq, <uint64_t>view.ts, view.length)
    if hole != NO_HOLE:
        block.damaged = True
    if view.kind == MARK and <uint64_t>view.written_ns > log.last_seq:
        # These messages were durable at that time, and no record of them can be read.
        found.holes.append((0, log.last_seq + 1, view.written_ns))
        reach(log, <uint64_t>view.written_ns, 0)
    if view.kind != MESSAGE:
        found.events.append((view.kind, view.seq, <uint64_t>view.ts, view.written_ns))
        apply_range(log, view.kind, view.seq, <uint64_t>view.ts, view.written_ns)
        return 0
    if (view.seq <= log.last_seq or view.seq < block.first_seq + block.nentries
            or view.seq - block.first_seq >= ENTRIES_MAX
            or (view.seq - block.first_seq) // (GAP_MAX + 1) > at // MESSAGE_BYTES_MIN):
        block.damaged = True
        found.holes.append((at, view.seq, view.seq))
        return 0
    if view.seq > log.last_seq + 1:
        found.holes.append((at if hole == NO_HOLE else hole, log.last_seq + 1, view.seq - 1))
    if view.flags & ERASED:
        block.dead_bytes += view.length
        reach(log, view.seq, view.ts)
        return 0
    log.add_entry(block, view.seq, view.ts, <uint32_t>at, view.length,
                  log.subjects.intern(view.subject, view.subject_len),
                  log.size_of(view.subject_len, view.header_len, view.payload_len))
    if view.deadline_ns:
        found.deadlines.append((view.seq, view.deadline_ns))
    return 0

def begin_block(RecordLog log not None, uint64_t first_seq) -> None:
    """Prepare the log for a block that starts here and is loaded from its index."""
    start_block(log, first_seq)

def end_block(RecordLog log not None, list events not None, facts) -> None:
    """Finish a block loaded from its index: apply its range records and its trailer."""
    cdef Block* block
    if log.block_first == log.block_last:
        raise ValueError("there is no block")
    block = log.blocks[log.block_last - 1]
    for kind, first, last, written_ns in events:
        apply_range(log, kind, first, last, written_ns)
    reach(log, facts.last_seq, 0)
    log.last_ts_ns = facts.last_ts_ns
    log.seal(block)
    block.dead_bytes += facts.dead_bytes
    block.records = facts.records
    block.lineage = facts.lineage
    block.previous = facts.previous
    block.footed = True
    block.verified = False

def reach_to(RecordLog log not None, uint64_t last) -> None:
    """Count every sequence up to `last` as assigned."""
    if last > SEQ_MAX:
        raise ValueError(f"no stream has sequence {last}")
    reach(log, last, 0)

cdef bint is_blank_rest(const char* base, size_t at, size_t end) noexcept nogil:
    while at < end:
        if base[at] != 0:
            return False
        at += 1
    return True

cdef void reach(RecordLog log, uint64_t last, int64_t ts):
    """Count every sequence up to `last` as assigned, at time `ts`."""
    if last > log.last_seq:
        log.last_seq = last
        if log.msgs == 0:
            log.first_seq = last + 1
    log.last_ts_ns = max(log.last_ts_ns, ts)

cdef void apply_range(RecordLog log, int kind, uint64_t first, uint64_t last, int64_t written_ns):
    cdef uint64_t seq
    if kind == SKIP:
        reach(log, last, written_ns)
        log.last_ts_ns = written_ns
        return
    if kind == FLOOR:
        last = first - 1
        first = 0
        reach(log, last, written_ns)
    elif kind != REMOVE:
        return
    elif first <= last:
        reach(log, last, 0)            # its message may have left no trace: overwritten
    seq = log.live_from(first)
    while seq and seq <= last:
        take_out(log, seq)
        seq = log.live_from(seq + 1)

cdef void take_back(RecordLog log, uint64_t seq):
    """Undo everything after `seq`: a block starts there, because the log was truncated."""
    cdef uint64_t victim = log.live_from(seq + 1)
    while victim:
        take_out(log, victim)
        victim = log.live_from(victim + 1)
    log.cut_back(seq)
