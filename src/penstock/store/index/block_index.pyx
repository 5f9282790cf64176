"""The index of a sealed block: the part of its footer that lets a store open without reading it.

An index lists the messages that were live when it was created, their subjects, and every range
record; docs/formats/block.md specifies the bytes. `make_index` reads each record of an image once;
`load_index` adds the block to a log without reading any record. The caller has verified the
index's hash; `load_index` checks all entries again before it changes the log.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.record_codec cimport (
    ALIGNMENT, DEADLINE_BYTES, ERASED, MARK, MESSAGE, MESSAGE_BYTES_MIN, REMOVE, SKIP, Keys, RecordView,
    is_possible_range, make_keys, read_record,
)
from penstock.store.index.block_list cimport ENTRIES_MAX, GAP_MAX, USED_BYTES_MAX, Block, Entry
from penstock.store.index.record_log cimport RecordLog
from penstock.store.index.seq_list cimport prefetch, seqs_expect, seqs_push
from penstock.store.index.subject_index cimport Name, Subject
from penstock.subjects.trie_nodes cimport hash_bytes, xalloc, xrealloc, xzalloc

from typing import NamedTuple

cdef enum:
    VARINT_BYTES_MAX = 10
    GROWTH_BYTES_MIN = 4096
    TABLE_SLOTS_MIN = 64
    PREFIX_BYTES = 12           # three counts
    FETCH_AHEAD = 16            # entries whose subjects are prefetched before use
    IN_USE = 1
    # flags of an entry
    PAD_MASK = 7
    HAS_HEADER = 8
    HAS_DEADLINE = 16
    APART = 32                  # its record does not follow that of the previous entry


class IndexLoaded(NamedTuple):
    """What the caller of `load_index` still has to apply.

    `events` are (kind, first, last, written) of range records, `deadlines` (sequence, time).
    """

    events: list[tuple[int, int, int, int]]
    deadlines: list[tuple[int, int]]


class BadIndex(Exception):
    """The index contradicts itself: nothing of it was used."""


# -------------------------------------------------------------------- writing

cdef char* more(Growing* out, size_t n) noexcept nogil:
    """Return space for n bytes and count them as used."""
    if out.used + n > out.cap:
        out.cap = max(<size_t>GROWTH_BYTES_MIN, 2 * out.cap)
        while out.used + n > out.cap:
            out.cap *= 2
        out.data = <char*>xrealloc(out.data, out.cap)
    out.used += n
    return out.data + out.used - n

cdef void put_varint(Growing* out, uint64_t value) noexcept nogil:
    cdef char* at = more(out, VARINT_BYTES_MAX)
    cdef char* start = at
    while value > 127:
        at[0] = <char>(value & 127 | 128)
        at += 1
        value >>= 7
    at[0] = <char>value
    out.used -= VARINT_BYTES_MAX - (at + 1 - start)

cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)

cdef inline int64_t unzigzag(uint64_t value) noexcept nogil:
    return <int64_t>(value >> 1) ^ -<int64_t>(value & 1)

cdef inline int64_t sum_of(int64_t one, int64_t other) noexcept nogil:
    """Return a sum that wraps like unsigned numbers: values from a file may be anything."""
    return <int64_t>(<uint64_t>one + <uint64_t>other)

cdef inline void put32(Growing* out, uint32_t value) noexcept nogil:
    memcpy(more(out, 4), &value, 4)


cdef inline int64_t difference(int64_t one, int64_t other) noexcept nogil:
    return <int64_t>(<uint64_t>one - <uint64_t>other)


cdef struct Named:
    const char* text
    uint32_t length
    uint32_t number           # from 1; 0: the slot is free

cdef struct Names:
    Named* slots
    uint32_t nslots
    uint32_t count
    Growing listed

cdef uint32_t number_of(Names* names, const char* text, uint32_t n) noexcept nogil:
    """Return the number of a subject in this block, from 0; list a new one."""
    cdef uint32_t i = <uint32_t>hash_bytes(text, n, 0) & (names.nslots - 1)
    while names.slots[i].number:
        if names.slots[i].length == n and memcmp(names.slots[i].text, text, n) == 0:
            return names.slots[i].number - 1
        i = (i + 1) & (names.nslots - 1)
    names.count += 1
    names.slots[i] = Named(text, n, names.count)
    put_varint(&names.listed, n)
    memcpy(more(&names.listed, n), text, n)
    if 4 * names.count > 3 * names.nslots:
        grow_names(names)
    return names.count - 1

cdef void grow_names(Names* names) noexcept nogil:
    cdef Named* old = names.slots
    cdef uint32_t n = names.nslots, i, j
    names.nslots = 2 * n
    names.slots = <Named*>xzalloc(names.nslots * sizeof(Named))
    for i in range(n):
        if old[i].number:
            j = <uint32_t>hash_bytes(old[i].text, old[i].length, 0) & (names.nslots - 1)
            while names.slots[j].number:
                j = (j + 1) & (names.nslots - 1)
            names.slots[j] = old[i]
    free(old)


cdef struct Listing:
    Names names
    Growing entries
    Growing events
    uint32_t nentries
    uint32_t nevents
    uint64_t last_seq         # of the entries so far
    int64_t last_ts
    size_t expected           # where a record directly after the last one would lie
    int kind                  # of the range record still open; 0: none
    uint64_t first
    uint64_t last
    int64_t written_ns
    int64_t written_before
    uint64_t first_before

cdef void list_message(Listing* listing, RecordView* view, size_t at) noexcept nogil:
    cdef uint32_t parts = view.subject_len + view.header_len + view.payload_len
    cdef uint32_t pad
    cdef uint8_t flags
    if view.deadline_ns:
        parts += DEADLINE_BYTES
    pad = view.length - MESSAGE_BYTES_MIN - parts
    flags = (pad | (HAS_HEADER if view.header_len else 0)
             | (HAS_DEADLINE if view.deadline_ns else 0)
             | (APART if at != listing.expected else 0))
    put_varint(&listing.entries, view.seq - listing.last_seq)
    more(&listing.entries, 1)[0] = <char>flags
    if flags & APART:
        put_varint(&listing.entries, (at - listing.expected) // ALIGNMENT)
    put_varint(&listing.entries, view.length // ALIGNMENT)
    put_varint(&listing.entries, zigzag(difference(view.ts, listing.last_ts)))
    put_varint(&listing.entries, number_of(&listing.names, view.subject, view.subject_len))
    if view.deadline_ns:
        put_varint(&listing.entries, zigzag(view.deadline_ns))
    listing.nentries += 1
    listing.last_seq = view.seq
    listing.last_ts = view.ts
    listing.expected = at + view.length

cdef void list_range(Listing* listing, RecordView* view) noexcept nogil:
    """List a range record; merge adjacent removals into one."""
    cdef uint64_t last = <uint64_t>view.ts
    if (view.kind == REMOVE and listing.kind == REMOVE and view.seq <= last
            and listing.first <= listing.last and view.seq == listing.last + 1):
        listing.last = last
        listing.written_ns = view.written_ns
        return
    end_range(listing)
    listing.kind = view.kind
    listing.first = view.seq
    listing.last = last
    listing.written_ns = view.written_ns

cdef void end_range(Listing* listing) noexcept nogil:
    if listing.kind == 0:
        return
    more(&listing.events, 1)[0] = <char>listing.kind
    put_varint(&listing.events, zigzag(<int64_t>(listing.first - listing.first_before)))
    put_varint(&listing.events, zigzag(<int64_t>(listing.last - listing.first)))
    put_varint(&listing.events, zigzag(difference(listing.written_ns, listing.written_before)))
    listing.first_before = listing.first
    listing.written_before = listing.written_ns
    listing.nevents += 1
    listing.kind = 0

cdef bint list_records(Listing* listing, const char* image, size_t at, size_t end,
                       const Keys* keys, uint64_t first_seq, const char* live,
                       uint64_t span) noexcept nogil:
    """List every record of an image; return False if one is invalid."""
    cdef RecordView view
    listing.expected = at
    listing.last_seq = first_seq - 1
    while at < end:
        if read_record(image + at, end - at, keys, &view, False) != 0:
            return False
        if view.kind != MESSAGE:
            list_range(listing, &view)
        elif (not view.flags & ERASED and view.seq > listing.last_seq
                and view.seq - first_seq < span and live[view.seq - first_seq]):
            list_message(listing, &view, at)
        at += view.length
    end_range(listing)
    return True

def make_index(const unsigned char[::1] image not None, size_t head, uint64_t incarnation,
               uint64_t number, uint64_t first_seq, bytes live not None) -> bytes | None:
    """Return the index of an image; `live` has a byte per sequence. None if it is damaged."""
    cdef Listing listing
    cdef Growing out
    cdef Keys keys
    cdef bint sound
    cdef const char* base = <const char*>&image[0]
    cdef const char* wanted = PyBytes_AS_STRING(live)
    cdef size_t end = image.shape[0]
    cdef uint64_t span = PyBytes_GET_SIZE(live)
    make_keys(&keys, incarnation, number)
    with nogil:
        init_listing(&listing)
        out = Growing(NULL, 0, 0)
        sound = list_records(&listing, base, head, end, &keys, first_seq, wanted, span)
        if sound:
            put32(&out, listing.names.count)
            put32(&out, listing.nentries)
            put32(&out, listing.nevents)
            join(&out, &listing.names.listed)
            join(&out, &listing.entries)
            join(&out, &listing.events)
        free(listing.names.slots)
        free(listing.names.listed.data)
        free(listing.entries.data)
        free(listing.events.data)
    try:
        return out.data[:out.used] if sound else None
    finally:
        free(out.data)

cdef void init_listing(Listing* listing) noexcept nogil:
    cdef Growing nothing = Growing(NULL, 0, 0)
    cdef Names names = Names(<Named*>xzalloc(TABLE_SLOTS_MIN * sizeof(Named)), TABLE_SLOTS_MIN, 0,
                             nothing)
    listing[0] = Listing(names, nothing, nothing, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)

cdef void join(Growing* out, Growing* part) noexcept nogil:
    if part.used:
        memcpy(more(out, part.used), part.data, part.used)


# -------------------------------------------------------------------- reading

cdef struct Cursor:
    const unsigned char* at
    const unsigned char* end
    bint bad

cdef uint64_t get_varint(Cursor* cursor) noexcept nogil:
    cdef uint64_t value = 0
    cdef uint8_t byte
    cdef int shift = 0
    while cursor.at < cursor.end and shift < 64:
        byte = cursor.at[0]
        cursor.at += 1
        value |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return value
        shift += 7
    cursor.bad = True
    return 0

cdef struct Listed:
    uint64_t seq
    int64_t ts
    size_t offset
    uint64_t length
    uint64_t subject
    int64_t deadline_ns
    uint64_t size
    size_t expected

cdef void next_listed(Cursor* cursor, Listed* entry) noexcept nogil:
    """Read the next entry, which is encoded relative to the previous one."""
    cdef int flags
    cdef uint64_t least
    entry.seq += get_varint(cursor)
    if cursor.at >= cursor.end:
        cursor.bad = True
        return
    flags = cursor.at[0]
    cursor.at += 1
    entry.offset = entry.expected
    if flags & APART:
        entry.offset += get_varint(cursor) * ALIGNMENT
    entry.length = get_varint(cursor) * ALIGNMENT
    entry.ts = sum_of(entry.ts, unzigzag(get_varint(cursor)))
    entry.subject = get_varint(cursor)
    entry.deadline_ns = unzigzag(get_varint(cursor)) if flags & HAS_DEADLINE else 0
    least = MESSAGE_BYTES_MIN + (flags & PAD_MASK) + (
        DEADLINE_BYTES if flags & HAS_DEADLINE else 0)
    if entry.length < least:
        cursor.bad = True
        return
    entry.size = entry.length - least + 30 + (4 if flags & HAS_HEADER else 0)
    entry.expected = entry.offset + entry.length

cdef bint read_names(Cursor* cursor, Name* names, uint32_t count) noexcept nogil:
    cdef uint32_t i
    cdef uint64_t n
    for i in range(count):
        n = get_varint(cursor)
        if cursor.bad or n > <uint64_t>(cursor.end - cursor.at):
            return False
        names[i] = Name(<const char*>cursor.at, <uint32_t>n, 0, NULL)
        cursor.at += n
    return True

cdef struct Span:
    Entry* entries            # one for every sequence from the block's first on, as in a block
    uint32_t count
    uint32_t cap

cdef Entry* entry_in(Span* span, uint64_t at) noexcept nogil:
    """Return the entry at a position after all others; entries in between are empty."""
    if at >= span.cap:
        span.cap = max(<uint32_t>(at + 1), span.cap + span.cap // 2)
        span.entries = <Entry*>xrealloc(span.entries, <size_t>span.cap * sizeof(Entry))
    memset(span.entries + span.count, 0, (at - span.count) * sizeof(Entry))
    span.count = <uint32_t>(at + 1)
    return span.entries + at

cdef bint read_entries(Cursor* cursor, Span* span, uint32_t count, Name* names,
                       uint32_t nsubjects, uint64_t first_seq, uint64_t last_seq, size_t head,
                       size_t end, list deadlines):
    """Read every entry; return False if one is out of place or out of order.

    Entries name their subjects by the numbers that these have in the index.
    """
    cdef Listed listed = Listed(first_seq - 1, 0, 0, 0, 0, 0, 0, head)
    cdef uint64_t before, reach_max = (end // MESSAGE_BYTES_MIN + 1) * (GAP_MAX + 1)
    cdef uint32_t i
    cdef Entry* entry
    for i in range(count):
        before = listed.seq
        next_listed(cursor, &listed)
        if (cursor.bad or listed.seq <= before or listed.seq > last_seq or listed.offset < head
                or listed.offset > end or listed.length > end - listed.offset
                or listed.length < MESSAGE_BYTES_MIN or listed.subject >= nsubjects
                or listed.seq - first_seq >= ENTRIES_MAX
                or listed.seq + 1 - first_seq >= reach_max):
            return False
        entry = entry_in(span, listed.seq - first_seq)
        entry.ts = listed.ts
        entry.offset = <uint32_t>listed.offset
        entry.length = <uint32_t>listed.length
        entry.subject = <uint32_t>listed.subject
        entry.size = <uint32_t>listed.size
        names[entry.subject].hash = IN_USE
        if listed.deadline_ns:
            deadlines.append((listed.seq, listed.deadline_ns))
    for i in range(nsubjects):
        if names[i].hash != IN_USE:
            return False        # the index lists only subjects with messages
    return True

def load_index(RecordLog log not None, bytes index not None, *, uint64_t number,
               uint64_t first_seq, uint64_t last_seq, size_t head, size_t used) -> IndexLoaded:
    """Add a block's entries from its index; return its range records; or raise BadIndex."""
    cdef Cursor cursor = Cursor(<const unsigned char*>PyBytes_AS_STRING(index), NULL, False)
    cdef uint32_t counts[3]
    cdef Span span = Span(NULL, 0, 0)
    cdef Name* names
    cdef Block* block
    cursor.end = cursor.at + PyBytes_GET_SIZE(index)
    if PyBytes_GET_SIZE(index) < PREFIX_BYTES:
        raise BadIndex("too short")
    memcpy(counts, cursor.at, PREFIX_BYTES)
    cursor.at += PREFIX_BYTES
    if <size_t>counts[0] + counts[1] + counts[2] > <size_t>PyBytes_GET_SIZE(index):
        raise BadIndex("more is counted than there is")
    if not 0 < first_seq <= SEQ_MAX + 1 or last_seq > SEQ_MAX or used > USED_BYTES_MAX or head > used:
        raise BadIndex("the block cannot be")
    if log.last_seq >= first_seq:
        raise BadIndex("the log is beyond the block")
    names = <Name*>xalloc((<size_t>counts[0] + 1) * sizeof(Name))
    span.cap = max(counts[1], <uint32_t>1)
    span.entries = <Entry*>xalloc(<size_t>span.cap * sizeof(Entry))
    deadlines = []
    try:
        if not read_names(&cursor, names, counts[0]) or not read_entries(
                &cursor, &span, counts[1], names, counts[0], first_seq, last_seq, head, used,
                deadlines):
            raise BadIndex("an entry cannot be")
        found = IndexLoaded(read_events(&cursor, counts[2]), deadlines)
        block = log.adopt_block(number, first_seq)
        block.head = head
        block.used = block.written = used
        log.subjects.forget_tallies()       # loading does not update them per message
        log.subjects.intern_all(names, counts[0])
        add_entries(log, block, &span, names)
        span.entries = NULL
        return found
    finally:
        free(names)
        free(span.entries)

cdef void add_entries(RecordLog log, Block* block, Span* span, Name* names) noexcept nogil:
    """Give the block its entries, and the subjects their sequences."""
    cdef uint32_t i, ahead
    cdef Entry* entry
    cdef Subject* subject
    for i in range(span.count):
        if i + FETCH_AHEAD < span.count:        # an empty entry has subject 0, which is harmless
            prefetch(names[span.entries[i + FETCH_AHEAD].subject].subject)
            ahead = span.entries[i + FETCH_AHEAD // 2].subject
            seqs_expect(&names[ahead].subject.seqs)
        entry = span.entries + i
        if entry.offset == 0:
            continue
        subject = names[entry.subject].subject
        entry.subject = subject.id
        seqs_push(&subject.seqs, block.first_seq + i)
        block.live += 1
        block.live_bytes += entry.length
        if log.msgs == 0:
            log.first_seq = block.first_seq + i
        log.msgs += 1
        log.total_size += entry.size
        log.last_ts_ns = entry.ts
    if span.count:
        log.last_seq = block.first_seq + span.count - 1
    block.entries = span.entries
    block.nentries = span.count
    block.entries_cap = span.cap

cdef list read_events(Cursor* cursor, uint32_t count):
    cdef uint64_t first = 0, last
    cdef int64_t written_ns = 0
    cdef int kind
    cdef uint32_t i
    events = []
    for i in range(count):
        if cursor.at >= cursor.end:
            raise BadIndex("cut off")
        kind = cursor.at[0]
        cursor.at += 1
        first += <uint64_t>unzigzag(get_varint(cursor))
        last = first + <uint64_t>unzigzag(get_varint(cursor))
        written_ns = sum_of(written_ns, unzigzag(get_varint(cursor)))
        if (cursor.bad or not SKIP <= kind <= MARK
                or not is_possible_range(kind, first, last, written_ns)):
            raise BadIndex("a range cannot be")
        events.append((kind, first, last, written_ns))
    return events
