"""Journal records and turns: the framing of the write-ahead log, docs/formats/journal.md.

    0  u16 magic   2 u8 kind   3 u8 zero   4 u32 length, a multiple of 8
    8  u64 group   16 u64 index            24 u64 term
    32 u32 payload length                  36 u32 header checksum
    40 payload, zeros up to the hash       length-8  u64 body hash

A turn is what one sync writes: a head record and the records of that turn. It begins at a multiple
of PAGE_BYTES, so a durable page is never written again. Checksums are bound to the incarnation of
the journal, the segment and the place in it: a record left over from an earlier use of the file,
or from another place, is not valid. No length is used before it is checked.
"""

from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.xxh64 cimport xxh64

cdef enum:
    MAGIC_0 = 0x50             # "PJ"
    MAGIC_1 = 0x4A
    HEADER_BYTES = 40
    CHECKED_BYTES = 36         # header bytes that its checksum covers
    HASH_BYTES = 8
    ALIGNMENT = 8
    LEAST_BYTES = 48           # of a record: header and hash
    TURN_PAYLOAD_BYTES = 24
    TURN_HEAD_BYTES = 72
    PAGE = 4096
    FIRST_ROOM_BYTES = 4096
    CONTINUES = 1              # flag of a turn: it counts only together with the next one
    LARGEST_BYTES = 268435456

RECORD_BYTES_MIN = LEAST_BYTES
HEAD_BYTES = TURN_HEAD_BYTES
PAGE_BYTES = PAGE
KIND_TURN = TURN
KIND_STATE = STATE
KIND_CUT = CUT
KIND_FLOOR = FLOOR
KIND_FORGET = FORGET
KIND_ENTRY = ENTRY


cdef inline void put32(char* at, uint32_t v) noexcept nogil:
    at[0] = <char>(v & 255)
    at[1] = <char>(v >> 8 & 255)
    at[2] = <char>(v >> 16 & 255)
    at[3] = <char>(v >> 24)

cdef inline void put64(char* at, uint64_t v) noexcept nogil:
    put32(at, <uint32_t>v)
    put32(at + 4, <uint32_t>(v >> 32))

cdef inline uint32_t get32(const char* at) noexcept nogil:
    cdef const unsigned char* p = <const unsigned char*>at
    return p[0] | (p[1] << 8) | (p[2] << 16) | (<uint32_t>p[3] << 24)

cdef inline uint64_t get64(const char* at) noexcept nogil:
    return get32(at) | (<uint64_t>get32(at + 4) << 32)

cdef void make_keys(JournalKeys* keys, uint64_t incarnation, uint64_t segment) noexcept nogil:
    cdef char bound[16]
    put64(bound, incarnation)
    put64(bound + 8, segment)
    keys.incarnation = incarnation
    keys.segment = segment
    keys.seed = xxh64(bound, 16, 0)

cdef inline uint64_t header_hash(const char* at, const JournalKeys* keys,
                                 uint64_t place) noexcept nogil:
    cdef char bound[8]
    put64(bound, place)
    return xxh64(at, CHECKED_BYTES, xxh64(bound, 8, keys.seed))

cdef inline size_t aligned(size_t n) noexcept nogil:
    return (n + ALIGNMENT - 1) & ~(<size_t>(ALIGNMENT - 1))

cdef void put_record(char* at, size_t length, const JournalKeys* keys, uint64_t place, int kind,
                     uint64_t group, uint64_t index, uint64_t term, const char* payload,
                     size_t n) noexcept nogil:
    """Write a record of `length` bytes, which is `aligned(LEAST_BYTES + n)`."""
    cdef uint64_t head
    at[0] = MAGIC_0
    at[1] = MAGIC_1
    at[2] = <char>kind
    at[3] = 0
    put32(at + 4, <uint32_t>length)
    put64(at + 8, group)
    put64(at + 16, index)
    put64(at + 24, term)
    put32(at + 32, <uint32_t>n)
    head = header_hash(at, keys, place)
    put32(at + CHECKED_BYTES, <uint32_t>head)
    memcpy(at + HEADER_BYTES, payload, n)
    memset(at + HEADER_BYTES + n, 0, length - LEAST_BYTES - n)
    put64(at + length - HASH_BYTES, xxh64(at + HEADER_BYTES, length - LEAST_BYTES, head))

cdef bint read_header(const char* at, size_t room, const JournalKeys* keys, uint64_t place,
                      JournalView* view, uint64_t* head) noexcept nogil:
    """Read a header at `at`, of which `room` bytes are available; return whether it is valid."""
    if room < LEAST_BYTES or at[0] != MAGIC_0 or at[1] != MAGIC_1:
        return False
    head[0] = header_hash(at, keys, place)
    if get32(at + CHECKED_BYTES) != <uint32_t>head[0]:
        return False
    view.kind = <unsigned char>at[2]
    view.length = get32(at + 4)
    view.group = get64(at + 8)
    view.index = get64(at + 16)
    view.term = get64(at + 24)
    view.payload_len = get32(at + 32)
    view.payload = at + HEADER_BYTES
    return (at[3] == 0 and view.length <= LARGEST_BYTES
            and view.length == aligned(<size_t>LEAST_BYTES + view.payload_len)
            and is_possible(view))

cdef bint is_possible(const JournalView* view) noexcept nogil:
    """Return whether a journal can have written such a record."""
    if view.index > SEQ_MAX or view.term > SEQ_MAX:
        return False
    if view.kind >= ENTRY:
        return view.index > 0
    if view.kind == TURN:
        return view.group == 0 and view.index > 0 and view.payload_len == TURN_PAYLOAD_BYTES
    if view.kind == CUT:
        return view.index > 0 and view.payload_len == 0
    return view.kind == STATE or (FLOOR <= view.kind <= FORGET and view.payload_len == 0)

cdef bint read_record(const char* at, size_t room, const JournalKeys* keys, uint64_t place,
                      JournalView* view) noexcept nogil:
    """Read the record at `at`; return whether it is valid, header and body."""
    cdef uint64_t head
    if not read_header(at, room, keys, place, view, &head) or view.length > room:
        return False
    return get64(at + view.length - HASH_BYTES) == xxh64(
        at + HEADER_BYTES, view.length - LEAST_BYTES, head)


# -------------------------------------------------------------------- for Python

cdef class SegmentKeys:
    """What the checksums of one segment are bound to."""

    def __cinit__(self, uint64_t incarnation, uint64_t segment):
        make_keys(&self.keys, incarnation, segment)


cdef class TurnBuffer:
    """The records of one turn, packed as they are written. The owner closes it once."""

    def __init__(self, SegmentKeys keys not None, uint64_t place, size_t capacity) -> None:
        """Begin a turn at a place of a segment; it never takes more than `capacity` bytes."""
        self.keys = keys.keys
        self.place = place
        self.capacity = capacity
        self.data = bytearray(FIRST_ROOM_BYTES)
        self.room = FIRST_ROOM_BYTES
        self.used = TURN_HEAD_BYTES

    cdef int grow(self, size_t needed) except -1:
        cdef size_t room = self.room
        while room < needed:
            room *= 2
        self.data += bytes(room - self.room)
        self.room = room
        return 0

    cdef int64_t add(self, int kind, uint64_t group, uint64_t index, uint64_t term,
                     const char* payload, size_t n) except? -2:
        cdef size_t length = aligned(LEAST_BYTES + n), at = self.used
        if n > LARGEST_BYTES or length > self.capacity - min(at, self.capacity):
            return -1
        if at + length > self.room:
            self.grow(at + length)
        put_record(<char*>self.data + at, length, &self.keys, self.place + at, kind, group, index,
                   term, payload, n)
        self.used = at + length
        self.records += 1
        return <int64_t>(self.place + at)

    def put(self, int kind, uint64_t group, uint64_t index, uint64_t term,
            bytes payload not None) -> int:
        """Append a record and return its place in the segment; -1 if it does not fit."""
        return self.add(kind, group, index, term, payload, len(payload))

    def close(self, uint64_t turn, uint64_t durable, size_t stored, bint continues) -> memoryview:
        """Write the head and return the turn. `durable`: the last turn known to be durable;
        `stored`: the bytes of the turn in the file, if they differ from these; else 0.
        `continues`: it counts only together with the next turn."""
        cdef char payload[TURN_PAYLOAD_BYTES]
        put64(payload, durable)
        put32(payload + 8, <uint32_t>self.used)
        put32(payload + 12, <uint32_t>(stored or self.used))
        put32(payload + 16, self.records)
        put32(payload + 20, CONTINUES if continues else 0)
        put_record(<char*>self.data, TURN_HEAD_BYTES, &self.keys, self.place, TURN, 0, turn, 0,
                   payload, TURN_PAYLOAD_BYTES)
        cdef size_t end = (self.used + PAGE - 1) & ~(<size_t>(PAGE - 1))
        if end > self.room:
            self.grow(end)
        memset(<char*>self.data + self.used, 0, end - self.used)
        return memoryview(self.data)[:end]


def record_bytes(size_t payload_len) -> int:
    """Return the length of a record with such a payload."""
    return aligned(LEAST_BYTES + payload_len)


def read_turn_head(SegmentKeys keys not None, const unsigned char[::1] data not None, size_t at,
                   uint64_t place) -> tuple | None:
    """Return (turn, durable, plain bytes, stored bytes, records, continues) of the head at
    data[at], which was written at `place` of the segment; None if there is no valid one."""
    cdef JournalView view
    cdef size_t end = data.shape[0]
    cdef const char* base = <const char*>&data[0] if end else NULL
    if at >= end or not read_record(base + at, end - at, &keys.keys, place, &view):
        return None
    if view.kind != TURN:
        return None
    plain, stored = get32(view.payload + 8), get32(view.payload + 12)
    if plain < TURN_HEAD_BYTES or stored < plain or get32(view.payload + 20) > CONTINUES:
        return None
    return (view.index, get64(view.payload), plain, stored, get32(view.payload + 16),
            get32(view.payload + 20) == CONTINUES)


def find_turn(SegmentKeys keys not None, const unsigned char[::1] data not None, size_t at) -> int:
    """Return the next place from `at` on, a multiple of PAGE_BYTES, with a valid head; the size of
    the data, which begins at place 0, if there is none."""
    cdef JournalView view
    cdef size_t end = data.shape[0]
    cdef const char* base = <const char*>&data[0] if end else NULL
    at = (at + PAGE - 1) & ~(<size_t>(PAGE - 1))
    while at < end:
        if (read_record(base + at, end - at, &keys.keys, at, &view) and view.kind == TURN):
            return at
        at += PAGE
    return end


def scan_records(SegmentKeys keys not None, const unsigned char[::1] data not None, size_t at,
                 size_t stop, uint64_t base) -> tuple[list, int]:
    """Return the valid records in data[at:stop] and the number of holes between them.

    A record is (place, kind, group, index, term, payload start, payload length). data[0] was
    written at place `base`. After damage the scan continues at the next valid record; heads of
    turns are left out.
    """
    cdef JournalView view
    cdef const char* raw
    cdef uint64_t head
    cdef bint in_hole = False
    cdef size_t holes = 0
    found = []
    if stop > <size_t>data.shape[0]:
        raise ValueError("the end is not inside the data")
    raw = <const char*>&data[0] if stop else NULL
    while at < stop:
        if read_record(raw + at, stop - at, &keys.keys, base + at, &view):
            in_hole = False
            if view.kind != TURN:
                found.append((base + at, view.kind, view.group, view.index, view.term,
                              at + HEADER_BYTES, view.payload_len))
            at += view.length
            continue
        holes += not in_hole
        in_hole = True
        if (read_header(raw + at, stop - at, &keys.keys, base + at, &view, &head)
                and view.length <= stop - at):
            at += view.length       # the header is valid: nothing begins inside this record
        else:
            at += ALIGNMENT
    return found, holes


def record_at(SegmentKeys keys not None, const unsigned char[::1] data not None, size_t at,
              uint64_t place) -> tuple | None:
    """Return (kind, group, index, term, payload start, payload length, length) of the record at
    data[at]; None if it is not valid. A record longer than the data is not valid either."""
    cdef JournalView view
    cdef size_t end = data.shape[0]
    if at >= end or not read_record(<const char*>&data[at], end - at, &keys.keys, place, &view):
        return None
    return (view.kind, view.group, view.index, view.term, at + HEADER_BYTES, view.payload_len,
            view.length)


def length_at(SegmentKeys keys not None, const unsigned char[::1] data not None,
              uint64_t place) -> int:
    """Return the length of the record whose header begins the data; 0 if it is not valid."""
    cdef JournalView view
    cdef uint64_t head
    if not data.shape[0] or not read_header(<const char*>&data[0], data.shape[0], &keys.keys,
                                            place, &view, &head):
        return 0
    return view.length
