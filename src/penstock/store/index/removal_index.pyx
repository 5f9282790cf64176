"""Removal of messages from a log: single ones, sequence spans, the oldest, the expired, by subject.

Removals create no Python object per message: they return ranges, and a span leaves one record in
the log however many messages it had. The cost depends on what is removed, not on what is stored;
only slices by pattern or by subject limit also examine entries that they keep, a bounded number.
The stores call this module; they enforce limits and forget deadlines.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcpy, memset

from penstock.records.record_codec cimport MESSAGE_BYTES_MIN, REMOVE, erase_record
from penstock.store.index.block_list cimport Block, Entry
from penstock.store.index.record_log cimport RecordLog, as_raw
from penstock.store.index.seq_list cimport SeqList, seqs_at_least, seqs_count_from, seqs_last, seqs_remove
from penstock.store.index.subject_index cimport Subject, count_message, subject_text
from penstock.store.index.subject_tally cimport Pattern, fits, free_pattern, make_pattern
from penstock.subjects.trie_nodes cimport has_wildcard, valid_pattern, xalloc

from typing import NamedTuple

from penstock.store.index.record_log import Cold

cdef enum:
    ALIGNED_START = 8


class Taken(NamedTuple):
    """Number of removed messages, their size, and ranges that hold no other live message."""

    msgs: int
    bytes: int
    ranges: list[tuple[int, int]]


cdef struct Sum:
    uint64_t msgs
    uint64_t size
    uint64_t first          # first removed sequence; 0: none yet
    uint64_t last

# Inline: otherwise the compiler emits a call, which costs 4 % of a removal.
cdef inline void take(RecordLog log, Block* block, Entry* entry, uint64_t seq,
                      Sum* total) noexcept nogil:
    """Remove one live message without updating the log's first sequence."""
    cdef Subject* subject = log.subjects.by_id[entry.subject]
    block.live -= 1
    block.live_bytes -= entry.length
    block.dead_bytes += entry.length
    entry.offset = 0
    if seq == seqs_last(&subject.seqs):
        log.loss_floor = max(log.loss_floor, seq)
        log.losses += log.is_requested or subject.seqs.count > 1
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
    """Free the memory of removed messages in a log without files."""
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
    used = ALIGNED_START            # offset 0 means no live message
    for i in range(block.nentries):
        if block.entries[i].offset:
            memcpy(image + used, block.image + block.entries[i].offset, block.entries[i].length)
            block.entries[i].offset = <uint32_t>used
            used += block.entries[i].length
    free(block.image)
    block.image = image
    block.image_cap = block.used = used


# -------------------------------------------------------------------- single messages

cdef uint64_t take_out(RecordLog log, uint64_t seq) noexcept nogil:
    """Remove a message without a record of it; return its size, 0 if it is missing."""
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
    """Remove a message; return its size, 0 if it is missing."""
    cdef uint64_t size = take_out(log, seq)
    if size:
        log.note_range(REMOVE, seq, seq, ts_ns)
    return size

def lose_one(RecordLog log not None, uint64_t seq) -> None:
    """Remove an unreadable message; record only the loss, not the removal."""
    cdef uint64_t losses = log.losses
    if take_out(log, seq):
        log.losses = losses + 1
        log.is_loss_unsaid = True
        log.note_loss()

def erase_one(RecordLog log not None, uint64_t seq, noise):
    """Overwrite a message in its image with `noise(n)`, and remove it.

    Returns (block, offset, length) of the bytes to write to the file again, None if the message
    is missing, or Cold.
    """
    cdef Block* block
    cdef bytes random
    cdef Entry* entry = log.entry_at(seq, &block)
    if entry == NULL:
        return None
    if block.image == NULL:
        return Cold(block.number)
    random = noise(entry.length)
    if len(random) < <Py_ssize_t>entry.length or entry.length < MESSAGE_BYTES_MIN:
        raise ValueError("less noise than there is to overwrite")
    place = (block.number, entry.offset, entry.length)
    log.loose.pop((block.number, seq), None)
    erase_record(block.image + entry.offset, entry.length, seq, &block.keys, random)
    remove_one(log, seq, log.last_ts_ns)
    return place


# -------------------------------------------------------------------- many messages

cdef void finish_removal(RecordLog log, Sum* total) noexcept nogil:
    """After a removal: update the first sequence and, in a memory log, free memory."""
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
    """Remove live messages from `first` to `last` that are not newer than `cutoff`, in order."""
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

cdef Sum take_everything(RecordLog log):
    """Remove all messages, without a search in the sequence list of each subject.

    Replaces the subject index; `RecordLog.shed` frees the old one in slices.
    """
    cdef Sum total = Sum(log.msgs, log.total_size, log.first_seq, log.live_before(log.last_seq))
    cdef uint32_t i
    cdef Block* block
    if log.is_requested:
        log.losses += len(log.subjects)
    log.renew_subjects()
    for i in range(log.block_first, log.block_last):
        block = log.blocks[i]
        clear_entries(block)
        block.dead_bytes += block.live_bytes
        block.live_bytes = block.live = 0
    log.msgs = log.total_size = 0
    log.loss_floor = max(log.loss_floor, total.last)
    return total

cdef void clear_entries(Block* block) noexcept nogil:
    cdef uint32_t at
    if block.live:
        for at in range(block.nentries):
            block.entries[at].offset = 0

cdef object taken_range(RecordLog log, Sum* total, int64_t ts, bint noted):
    if total.msgs == 0:
        return Taken(0, 0, [])
    if noted:
        log.note_range(REMOVE, total.first, total.last, ts)
    return Taken(total.msgs, total.size, [(total.first, total.last)])

cdef int64_t NO_CUTOFF = 0x7fffffffffffffffLL
cdef uint64_t NO_BOUND = 0xffffffffffffffffULL


def take_span(RecordLog log not None, uint64_t first, uint64_t last, int64_t ts_ns, *,
              bint noted=True, uint64_t at_most=NO_BOUND) -> Taken:
    """Remove the messages from `first` to `last`, at most `at_most`; if the span covers the whole
    log, remove all of them at once. `noted`: write a record of it."""
    cdef Sum total = Sum(0, 0, 0, 0)
    if log.msgs and first <= log.first_seq and log.last_seq <= last:
        total = take_everything(log)
    else:
        with nogil:
            take_blocks(log, first, last, NO_CUTOFF, at_most, &total)
    finish_removal(log, &total)
    return taken_range(log, &total, ts_ns, noted)

def take_older(RecordLog log not None, uint64_t start, int64_t cutoff_ns, uint64_t at_most,
               int64_t ts_ns) -> Taken:
    """Remove messages from `start` on until the first one that is newer than `cutoff_ns`."""
    cdef Sum total = Sum(0, 0, 0, 0)
    with nogil:
        take_blocks(log, start, NO_BOUND, cutoff_ns, at_most, &total)
        finish_removal(log, &total)
    return taken_range(log, &total, ts_ns, True)

def take_front(RecordLog log not None, int64_t msgs_max, int64_t bytes_max, uint64_t at_most,
               int64_t ts_ns) -> Taken:
    """Remove the oldest messages, at most `at_most`, until within the limits; below 1: no limit."""
    cdef Sum total = Sum(0, 0, 0, 0)
    cdef uint64_t seq = log.first_seq
    with nogil:
        while log.msgs and total.msgs < at_most and (
                (0 < msgs_max and <uint64_t>msgs_max < log.msgs)
                or (0 < bytes_max and <uint64_t>bytes_max < log.total_size)):
            take_blocks(log, seq, NO_BOUND, NO_CUTOFF, total.msgs + 1, &total)
            seq = total.last + 1
        if total.msgs:
            finish_removal(log, &total)
    return taken_range(log, &total, ts_ns, True)


# -------------------------------------------------------------------- by subject, in slices
#
# A slice removes messages in sequence order and returns where the next slice continues, so that no
# state is kept between slices, and neighbouring sequences form one range.

cdef struct Slice:
    uint64_t at             # the first sequence not examined yet
    uint64_t bound          # sequences at or above it are not examined
    uint64_t room           # messages it may still remove
    uint64_t looks          # sequences it may still examine
    uint64_t* ranges        # first and last of each, alternating; capacity for `room` of them
    uint64_t nranges
    bint is_open            # no live message follows the last range so far
    Sum total

cdef inline void add_taken(Slice* part, uint64_t seq) noexcept nogil:
    """Add a removed sequence, which is above all earlier ones."""
    if not part.is_open:
        part.ranges[2 * part.nranges] = seq
        part.nranges += 1
        part.is_open = True
    part.ranges[2 * part.nranges - 1] = seq

cdef void slice_blocks(RecordLog log, const Pattern* pattern, uint64_t kept,
                       Slice* part) noexcept nogil:
    """Examine every message: remove those whose subject matches `pattern`; without a pattern,
    those whose subject has more than `kept` messages left."""
    cdef uint32_t i = log.index_at(part.at)
    cdef uint64_t at, stop
    cdef Block* block
    cdef Subject* subject
    cdef bint wanted
    i = i - 1 if i > log.block_first else i
    while i < log.block_last and log.blocks[i].first_seq < part.bound:
        block = log.blocks[i]
        i += 1
        at = part.at - block.first_seq if part.at > block.first_seq else 0
        stop = min(<uint64_t>block.nentries, part.bound - block.first_seq)
        while at < stop and block.live:
            if part.room == 0 or part.looks == 0:
                part.at = block.first_seq + at
                return
            part.looks -= 1
            if block.entries[at].offset:
                subject = log.subjects.by_id[block.entries[at].subject]
                if pattern == NULL:
                    wanted = subject.seqs.count > kept
                else:
                    wanted = not subject.odd and fits(pattern, subject_text(subject),
                                                      subject.length)
                if wanted:
                    take(log, block, &block.entries[at], block.first_seq + at, &part.total)
                    add_taken(part, block.first_seq + at)
                    part.room -= 1
                else:
                    part.is_open = False
            at += 1
    part.at = part.bound

cdef void slice_subject(RecordLog log, Subject* subject, Slice* part) noexcept nogil:
    """Remove the messages of one subject."""
    cdef uint64_t seq = seqs_at_least(&subject.seqs, part.at), last = 0
    cdef Block* block
    cdef Entry* entry
    cdef bint is_last
    while seq and seq < part.bound:
        part.at = seq
        if part.room == 0:
            return
        entry = log.entry_at(seq, &block)
        if entry == NULL:
            break
        if last and any_live(log, last + 1, seq):
            part.is_open = False
        is_last = subject.seqs.count == 1         # `take` then frees the subject
        take(log, block, entry, seq, &part.total)
        add_taken(part, seq)
        part.room -= 1
        last = seq
        seq = 0 if is_last else seqs_at_least(&subject.seqs, seq + 1)
    part.at = part.bound

cdef bint any_live(RecordLog log, uint64_t start, uint64_t stop) noexcept nogil:
    cdef uint64_t seq
    if start == stop:
        return False
    seq = log.live_from(start)
    return seq != 0 and seq < stop

cdef object end_slice(RecordLog log, Slice* part, int64_t ts_ns):
    """Write the records of the removals; return the removals and where to continue."""
    cdef uint64_t i
    finish_removal(log, &part.total)
    ranges = []
    for i in range(part.nranges):
        ranges.append((part.ranges[2 * i], part.ranges[2 * i + 1]))
        log.note_range(REMOVE, part.ranges[2 * i], part.ranges[2 * i + 1], ts_ns)
    return Taken(part.total.msgs, part.total.size, ranges), part.at

cdef Slice begin_slice(uint64_t start, uint64_t bound, uint64_t at_most, uint64_t looks):
    cdef Slice part
    memset(&part, 0, sizeof(Slice))
    part.at = min(start, bound)
    part.bound = bound
    part.room = at_most
    part.looks = looks
    part.ranges = <uint64_t*>xalloc(2 * (at_most + 1) * sizeof(uint64_t))
    return part

def slice_matching(RecordLog log not None, str pattern not None, uint64_t start, uint64_t bound,
                   uint64_t at_most, uint64_t looks, int64_t ts_ns) -> tuple[Taken, int]:
    """Remove `at_most` messages from `start` to below `bound` whose subjects match a pattern.

    Examines at most `looks` sequences. Returns the removals, and `bound` if the slice is complete,
    else the sequence to continue at.
    """
    cdef bytes raw = as_raw(pattern)
    cdef const char* text = PyBytes_AS_STRING(raw)
    cdef size_t n = PyBytes_GET_SIZE(raw)
    cdef Pattern compiled
    cdef Slice part = begin_slice(start, bound, at_most, looks)
    try:
        if not valid_pattern(text, n):
            part.at = bound
        elif not has_wildcard(text, n):
            if log.subjects.find(text, n) != NULL:
                slice_subject(log, log.subjects.find(text, n), &part)
            else:
                part.at = bound
        elif log.subjects.is_few(text, n) and few_below(log, &part):
            take_found(log, &part)
        else:
            compiled = make_pattern(text, n)
            slice_blocks(log, &compiled, 0, &part)
            free_pattern(&compiled)
            if 2 * part.total.msgs < at_most:
                log.subjects.plant_some()       # the pattern matches few of many: build the trie
        return end_slice(log, &part, ts_ns)
    finally:
        free(part.ranges)

def slice_surplus(RecordLog log not None, uint64_t kept, uint64_t start, uint64_t bound,
                  uint64_t at_most, uint64_t looks, int64_t ts_ns) -> tuple[Taken, int]:
    """Remove `at_most` messages from `start` on whose subject has more than `kept` messages left;
    return the same as `slice_matching`."""
    cdef Slice part = begin_slice(start, bound, at_most, looks)
    try:
        slice_blocks(log, NULL, kept, &part)
        return end_slice(log, &part, ts_ns)
    finally:
        free(part.ranges)

cdef bint few_below(RecordLog log, Slice* part) noexcept nogil:
    """Return whether the found subjects have no more messages than the slice may remove."""
    cdef uint64_t total = 0
    cdef uint32_t i
    cdef SeqList* seqs
    for i in range(log.subjects.nfound):
        seqs = &log.subjects.matched(i).seqs
        total += seqs_count_from(seqs, part.at)
        if seqs_last(seqs) >= part.bound:
            total -= seqs_count_from(seqs, part.bound)
        if total > part.room:
            return False
    return True

cdef int by_value(const void* a, const void* b) noexcept nogil:
    cdef uint64_t one = (<const uint64_t*>a)[0], other = (<const uint64_t*>b)[0]
    return -1 if one < other else one > other

cdef void take_found(RecordLog log, Slice* part) noexcept nogil:
    """Remove all messages of the found subjects, of which there are few."""
    cdef uint64_t* victims = <uint64_t*>xalloc((part.room + 1) * sizeof(uint64_t))
    cdef uint64_t n = 0, i, seq
    cdef uint32_t each
    cdef SeqList* seqs
    cdef Block* block
    cdef Entry* entry
    for each in range(log.subjects.nfound):
        seqs = &log.subjects.matched(each).seqs
        seq = seqs_at_least(seqs, part.at)
        while seq and seq < part.bound and n < part.room:
            victims[n] = seq
            n += 1
            seq = seqs_at_least(seqs, seq + 1)
    qsort(victims, n, sizeof(uint64_t), by_value)
    for i in range(n):
        entry = log.entry_at(victims[i], &block)
        if entry == NULL:
            continue
        if i and any_live(log, victims[i - 1] + 1, victims[i]):
            part.is_open = False
        take(log, block, entry, victims[i], &part.total)
        add_taken(part, victims[i])
    part.at = part.bound
    free(victims)


# -------------------------------------------------------------------- purge with keep

def newest_from(RecordLog log not None, str pattern not None, uint64_t n, uint64_t before,
                uint64_t looks) -> tuple[int, int]:
    """Count messages below `before` that match a pattern, newest first, until there are `n`.

    Examines at most `looks` sequences. Returns the last sequence examined (0: no more messages)
    and how many are still missing.
    """
    cdef bytes raw = as_raw(pattern)
    cdef Pattern compiled = make_pattern(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
    cdef uint64_t seq = before
    cdef Block* block = NULL
    cdef Subject* subject
    with nogil:
        while n and looks and seq > 0:
            seq = log.live_before(seq - 1)
            if seq == 0:
                break
            looks -= 1
            subject = log.subjects.by_id[log.entry_at(seq, &block).subject]
            n -= not subject.odd and fits(&compiled, subject_text(subject), subject.length)
    free_pattern(&compiled)
    return seq, n
