"""Taking messages out of a log: one, spans of sequences, the oldest, the old, those of subjects.

Nothing here looks at a message it does not take. Where many are taken at once no Python object is
made for each: what was taken is answered as ranges, and a span leaves one record in the log however
many messages it had. The cost follows what is taken out, not what is stored.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcpy

from penstock.records.codec cimport REMOVE, erase_record
from penstock.store.blocklist cimport Block, Entry
from penstock.store.recordlog cimport RecordLog, as_raw
from penstock.store.seqlist cimport SeqList, seqs_at_least, seqs_count_from, seqs_last, seqs_remove
from penstock.store.subjectindex cimport Subject, count_message
from penstock.subjects.nodes cimport xalloc

from typing import NamedTuple

from penstock.store.recordlog import Cold

cdef enum:
    ALIGNED_START = 8


class Taken(NamedTuple):
    """How many messages, the size they counted, and ranges that hold no other live message."""

    msgs: int
    bytes: int
    ranges: list[tuple[int, int]]


cdef struct Sum:
    uint64_t msgs
    uint64_t size
    uint64_t first          # taken; 0: none yet
    uint64_t last

# Inlined: the compiler would make it a call, which is 4 % of removing one.
cdef inline void take(RecordLog log, Block* block, Entry* entry, uint64_t seq,
                      Sum* total) noexcept nogil:
    """One live message, without looking for what is the first now."""
    cdef Subject* subject = log.subjects.by_id[entry.subject]
    block.live -= 1
    block.live_bytes -= entry.length
    block.dead_bytes += entry.length
    entry.offset = 0
    if seq > log.loss_floor and seq == seqs_last(&subject.seqs):
        log.loss_floor = seq
    seqs_remove(&subject.seqs, seq)
    count_message(log.subjects, subject.id, -1)
    if subject.seqs.count == 0:
        log.subjects.release(subject)
    log.msgs -= 1
    log.total_size -= entry.size
    total.msgs += 1
    total.size += entry.size
    total.first = total.first if total.first else seq
    total.last = seq

cdef void reclaim(RecordLog log, Block* block) noexcept nogil:
    """Gives memory of removed messages back, in a log that is nowhere else."""
    cdef char* image
    cdef uint32_t i
    cdef size_t used = 0
    if block.live == 0:
        i = log.block_first
        while log.blocks[i] != block:
            i += 1
        log.forget_block(i)
        return
    if 2 * block.live_bytes > block.used:
        return
    image = <char*>xalloc(block.live_bytes + ALIGNED_START)
    used = ALIGNED_START            # offset 0 means that nothing lives there
    for i in range(block.nentries):
        if block.entries[i].offset:
            memcpy(image + used, block.image + block.entries[i].offset, block.entries[i].length)
            block.entries[i].offset = <uint32_t>used
            used += block.entries[i].length
    free(block.image)
    block.image = image
    block.image_cap = block.used = used


# -------------------------------------------------------------------- one

cdef uint64_t take_out(RecordLog log, uint64_t seq) noexcept nogil:
    """Takes a message out, without a record about it; the size it counted, 0 if it was not there."""
    cdef Block* block
    cdef Entry* entry = log.entry_at(seq, &block)
    cdef Sum total = Sum(0, 0, 0, 0)
    if entry == NULL:
        return 0
    take(log, block, entry, seq, &total)
    if seq == log.first_seq:
        log.move_first()
    if block.sealed and not log.records_removals:
        reclaim(log, block)
    return total.size

def remove_one(RecordLog log not None, uint64_t seq, int64_t ts_ns) -> int:
    """Takes a message out; answers the size it counted, 0 if it was not there."""
    cdef uint64_t size = take_out(log, seq)
    if size:
        log.note_range(REMOVE, seq, seq, ts_ns)
    return size

def lose_one(RecordLog log not None, uint64_t seq) -> None:
    """Takes a message out of which nothing can be read; all that is said is what was lost."""
    if take_out(log, seq):
        log.is_loss_unsaid = True
        log.note_loss()

def erase_one(RecordLog log not None, uint64_t seq, noise):
    """Overwrites a message in its image with `noise(n)`, and removes it.

    Answers (block, offset, length) of the bytes that must be written again, None if the message
    was not there, or Cold.
    """
    cdef Block* block
    cdef bytes random
    cdef Entry* entry = log.entry_at(seq, &block)
    if entry == NULL:
        return None
    if block.image == NULL:
        return Cold(block.number)
    random = noise(entry.length)
    if len(random) < <Py_ssize_t>entry.length:
        raise ValueError("less noise than there is to overwrite")
    place = (block.number, entry.offset, entry.length)
    log.loose.pop((block.number, seq), None)
    erase_record(block.image + entry.offset, &block.keys, random)
    remove_one(log, seq, log.last_ts_ns)
    return place


# -------------------------------------------------------------------- many

cdef void settle(RecordLog log, Sum* total) noexcept nogil:
    """After taking: the first message, and in memory alone the room of those that are gone."""
    cdef uint32_t i, low
    if total.msgs == 0:
        return
    if total.first <= log.first_seq:
        log.move_first()
    if log.records_removals:
        return
    i = log.index_at(total.last)
    low = log.index_at(total.first)
    while i > log.block_first and i >= low:
        i -= 1
        if log.blocks[i].sealed:
            reclaim(log, log.blocks[i])

cdef void take_blocks(RecordLog log, uint64_t first, uint64_t last, int64_t cutoff,
                      uint64_t at_most, Sum* total) noexcept nogil:
    """Every live message from `first` to `last` not younger than `cutoff`, in order."""
    cdef uint32_t i = log.index_at(first)
    cdef uint64_t at
    cdef Block* block
    i = i - 1 if i > log.block_first else i
    while i < log.block_last and log.blocks[i].first_seq <= last and total.msgs < at_most:
        block = log.blocks[i]
        i += 1
        at = first - block.first_seq if first > block.first_seq else 0
        while at < block.nentries and block.live and total.msgs < at_most:
            if block.entries[at].offset:
                if block.first_seq + at > last or block.entries[at].ts > cutoff:
                    return
                take(log, block, &block.entries[at], block.first_seq + at, total)
            at += 1

cdef void take_everything(RecordLog log, Sum* total) noexcept nogil:
    """All there is: no message has to be looked for in the list of its subject."""
    cdef uint32_t i, at
    cdef Block* block
    cdef Subject* subject
    total[0] = Sum(log.msgs, log.total_size, log.first_seq, log.live_before(log.last_seq))
    for i in range(log.block_first, log.block_last):
        block = log.blocks[i]
        for at in range(block.nentries):
            block.entries[at].offset = 0
        block.dead_bytes += block.live_bytes
        block.live_bytes = block.live = 0
    for i in range(log.subjects.ids):
        subject = log.subjects.by_id[i]
        if subject != NULL:
            log.subjects.release(subject)
    for i in range(log.subjects.ntallies):
        log.subjects.tallies[i].msgs = 0
    log.msgs = log.total_size = 0
    log.loss_floor = max(log.loss_floor, total.last)

cdef object told(RecordLog log, Sum* total, int64_t ts, bint noted):
    if total.msgs == 0:
        return Taken(0, 0, [])
    if noted:
        log.note_range(REMOVE, total.first, total.last, ts)
    return Taken(total.msgs, total.size, [(total.first, total.last)])

cdef int64_t NO_CUTOFF = 0x7fffffffffffffffLL
cdef uint64_t NO_BOUND = 0xffffffffffffffffULL


def take_span(RecordLog log not None, uint64_t first, uint64_t last, int64_t ts_ns, *,
              bint noted=True) -> Taken:
    """Every message from `first` to `last`. `noted`: with a record about it."""
    cdef Sum total = Sum(0, 0, 0, 0)
    with nogil:
        if log.msgs and first <= log.first_seq and log.last_seq <= last:
            take_everything(log, &total)
        else:
            take_blocks(log, first, last, NO_CUTOFF, NO_BOUND, &total)
        settle(log, &total)
    return told(log, &total, ts_ns, noted)

def take_older(RecordLog log not None, uint64_t start, int64_t cutoff_ns, uint64_t at_most,
               int64_t ts_ns) -> Taken:
    """From `start` on, messages not younger than `cutoff_ns`, up to the first that is."""
    cdef Sum total = Sum(0, 0, 0, 0)
    with nogil:
        take_blocks(log, start, NO_BOUND, cutoff_ns, at_most, &total)
        settle(log, &total)
    return told(log, &total, ts_ns, True)

def take_front(RecordLog log not None, int64_t msgs_max, int64_t bytes_max, int64_t ts_ns) -> Taken:
    """The oldest, until there are no more than this; below 1 is no bound."""
    cdef Sum total = Sum(0, 0, 0, 0)
    cdef uint64_t seq = log.first_seq
    with nogil:
        while log.msgs and ((0 < msgs_max and <uint64_t>msgs_max < log.msgs)
                            or (0 < bytes_max and <uint64_t>bytes_max < log.total_size)):
            take_blocks(log, seq, NO_BOUND, NO_CUTOFF, total.msgs + 1, &total)
            seq = total.last + 1
        if total.msgs:
            settle(log, &total)
    return told(log, &total, ts_ns, True)


# -------------------------------------------------------------------- by subject

cdef int by_value(const void* a, const void* b) noexcept nogil:
    cdef uint64_t one = (<const uint64_t*>a)[0], other = (<const uint64_t*>b)[0]
    return -1 if one < other else one > other

cdef uint64_t gather(SeqList* seqs, uint64_t start, uint64_t count, uint64_t* out) noexcept nogil:
    """The first `count` sequences from `start` on."""
    cdef uint64_t i, seq = start
    for i in range(count):
        seq = seqs_at_least(seqs, seq)
        out[i] = seq
        seq += 1
    return count

def take_matching(RecordLog log not None, str pattern not None, uint64_t bound, int64_t ts_ns, *,
                  uint64_t spared=0) -> Taken:
    """Messages below `bound` whose subjects a pattern matches; of each subject all but the newest
    `spared`."""
    cdef bytes raw = as_raw(pattern)
    cdef uint32_t i, found = log.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    cdef uint64_t count = 0, n = 0, below
    cdef SeqList* seqs
    cdef uint64_t* victims
    for i in range(found):
        seqs = &log.subjects.matched(i).seqs
        below = seqs.count - seqs_count_from(seqs, bound)
        count += below - spared if below > spared else 0
    victims = <uint64_t*>xalloc((count + 1) * sizeof(uint64_t))
    try:
        for i in range(found):
            seqs = &log.subjects.matched(i).seqs
            below = seqs.count - seqs_count_from(seqs, bound)
            if below > spared:
                n += gather(seqs, 0, below - spared, victims + n)
        return take_each(log, victims, n, ts_ns)
    finally:
        free(victims)

cdef object take_each(RecordLog log, uint64_t* victims, uint64_t n, int64_t ts_ns):
    cdef Sum total = Sum(0, 0, 0, 0)
    cdef uint64_t i, first
    cdef Block* block
    cdef Entry* entry
    with nogil:
        qsort(victims, n, sizeof(uint64_t), by_value)
        for i in range(n):
            entry = log.entry_at(victims[i], &block)
            take(log, block, entry, victims[i], &total)
        settle(log, &total)
    ranges = []
    i = 0
    while i < n:
        first = victims[i]
        while i + 1 < n and not any_live(log, victims[i] + 1, victims[i + 1]):
            i += 1
        ranges.append((first, victims[i]))
        log.note_range(REMOVE, first, victims[i], ts_ns)
        i += 1
    return Taken(total.msgs, total.size, ranges)

cdef bint any_live(RecordLog log, uint64_t start, uint64_t stop) noexcept nogil:
    cdef uint64_t seq
    if start == stop:
        return False
    seq = log.live_from(start)
    return seq != 0 and seq < stop
