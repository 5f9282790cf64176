"""Records: the framing of everything appended to a block, as docs/formats/record.md specifies it.

    0  u16 magic   2 u8 kind   3 u8 flags   4 u32 length, a multiple of 8
    8  u64 sequence                         16 i64 timestamp ns, or last sequence of a range
    24 u16 subject length  26 u16 zero      28 u32 header length   32 u32 payload length
    36 u32 header checksum
    40 [i64 deadline] subject, header, payload, zero bytes up to the hash; of a range, i64 timestamp
    length-8  u64 body hash

The header checksum is bound to stream and block, the body hash to the sequence as well: a record
that is stale, misdirected or from another stream is not valid, and a scan can find the next record
after damage. No length read from a record is used before it is checked, and a record that names
sequences no stream can have is treated like one with a wrong checksum.
"""

from libc.string cimport memcpy, memset

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.xxh64 cimport xxh64

cdef enum:
    MAGIC_0 = 0x50             # "PR"
    MAGIC_1 = 0x52
    HEADER_BYTES = 40
    CHECKED_BYTES = 36         # header bytes that its checksum covers
    HASH_BYTES = 8
    TIME_BYTES = 8
HEADER_SIZE = HEADER_BYTES
VERDICTS = {VALID: "valid", BLANK: "blank", BAD_HEADER: "bad header", BAD_BODY: "bad body",
            CUT_OFF: "cut off"}
KINDS = {MESSAGE: "message", SKIP: "skip", REMOVE: "remove", FLOOR: "floor", RESERVE: "reserve",
         MARK: "mark"}


cdef inline void put16(char* at, uint16_t v) noexcept nogil:
    at[0] = <char>(v & 255)
    at[1] = <char>(v >> 8)

cdef inline void put32(char* at, uint32_t v) noexcept nogil:
    put16(at, <uint16_t>v)
    put16(at + 2, <uint16_t>(v >> 16))

cdef inline void put64(char* at, uint64_t v) noexcept nogil:
    put32(at, <uint32_t>v)
    put32(at + 4, <uint32_t>(v >> 32))

cdef inline uint32_t get16(const char* at) noexcept nogil:
    return (<const unsigned char*>at)[0] | ((<const unsigned char*>at)[1] << 8)

cdef inline uint32_t get32(const char* at) noexcept nogil:
    return get16(at) | (get16(at + 2) << 16)

cdef inline uint64_t get64(const char* at) noexcept nogil:
    return get32(at) | (<uint64_t>get32(at + 4) << 32)


cdef void make_keys(Keys* keys, uint64_t incarnation, uint64_t block) noexcept nogil:
    cdef char bound[16]
    put64(bound, incarnation)
    put64(bound + 8, block)
    keys.incarnation = incarnation
    keys.block = block
    keys.header_seed = xxh64(bound, 16, 0)

cdef inline uint64_t body_seed(const Keys* keys, uint64_t seq) noexcept nogil:
    cdef char bound[8]
    put64(bound, seq)
    return xxh64(bound, 8, keys.header_seed)

cdef size_t message_length(size_t subject_len, size_t header_len, size_t payload_len,
                           int64_t deadline_ns) noexcept nogil:
    cdef size_t body = subject_len + header_len + payload_len
    if deadline_ns:
        body += DEADLINE_BYTES
    return (HEADER_BYTES + body + HASH_BYTES + ALIGNMENT - 1) & ~(<size_t>(ALIGNMENT - 1))

cdef void put_header(char* at, const Keys* keys, int kind, int flags, size_t length, uint64_t seq,
                     int64_t ts, size_t subject_len, size_t header_len,
                     size_t payload_len) noexcept nogil:
    at[0] = MAGIC_0
    at[1] = MAGIC_1
    at[2] = <char>kind
    at[3] = <char>flags
    put32(at + 4, <uint32_t>length)
    put64(at + 8, seq)
    put64(at + 16, <uint64_t>ts)
    put16(at + 24, <uint16_t>subject_len)
    put16(at + 26, 0)
    put32(at + 28, <uint32_t>header_len)
    put32(at + 32, <uint32_t>payload_len)
    put32(at + CHECKED_BYTES, <uint32_t>xxh64(at, CHECKED_BYTES, keys.header_seed))

cdef inline void seal_body(char* at, size_t length, const Keys* keys, uint64_t seq) noexcept nogil:
    put64(at + length - HASH_BYTES,
          xxh64(at + HEADER_BYTES, length - HEADER_BYTES - HASH_BYTES, body_seed(keys, seq)))

cdef void put_message(char* at, size_t length, const Keys* keys, uint64_t seq, int64_t ts,
                      const char* subject, size_t subject_len, const char* header,
                      size_t header_len, const char* payload, size_t payload_len,
                      int64_t deadline_ns) noexcept nogil:
    """Write a message of `message_length` bytes."""
    cdef char* body = at + HEADER_BYTES
    put_header(at, keys, MESSAGE, DEADLINE if deadline_ns else 0, length, seq, ts, subject_len,
               header_len, payload_len)
    if deadline_ns:
        put64(body, <uint64_t>deadline_ns)
        body += DEADLINE_BYTES
    memcpy(body, subject, subject_len)
    body += subject_len
    memcpy(body, header, header_len)
    body += header_len
    memcpy(body, payload, payload_len)
    body += payload_len
    memset(body, 0, at + length - HASH_BYTES - body)
    seal_body(at, length, keys, seq)

cdef size_t put_range(char* at, const Keys* keys, int kind, uint64_t first, uint64_t last,
                      int64_t ts) noexcept nogil:
    """Write a record about a range of sequences; return its length."""
    put_header(at, keys, kind, 0, RANGE_BYTES, first, <int64_t>last, 0, 0, TIME_BYTES)
    put64(at + HEADER_BYTES, <uint64_t>ts)
    seal_body(at, RANGE_BYTES, keys, first)
    return RANGE_BYTES

cdef int read_record(const char* at, size_t room, const Keys* keys, RecordView* view,
                     bint check_body) noexcept nogil:
    """Read the record at `at`, of which `room` bytes are available; return a Verdict."""
    cdef const char* body = at + HEADER_BYTES
    cdef size_t parts, padding
    if room < HEADER_BYTES:
        return BLANK if is_blank(at, room) else BAD_HEADER
    if at[0] != MAGIC_0 or at[1] != MAGIC_1:
        return BLANK if is_blank(at, HEADER_BYTES) else BAD_HEADER
    if get32(at + CHECKED_BYTES) != <uint32_t>xxh64(at, CHECKED_BYTES, keys.header_seed):
        return BAD_HEADER
    view.kind = at[2]
    view.flags = at[3]
    view.length = get32(at + 4)
    view.seq = get64(at + 8)
    view.ts = <int64_t>get64(at + 16)
    view.subject_len = get16(at + 24)
    view.header_len = get32(at + 28)
    view.payload_len = get32(at + 32)
    view.deadline_ns = 0
    parts = <size_t>view.subject_len + view.header_len + view.payload_len
    if view.flags & DEADLINE:
        parts += DEADLINE_BYTES
    # Unsigned: parts that are too long for the record give a large padding.
    padding = <size_t>view.length - MESSAGE_BYTES_MIN - parts
    if (view.kind < MESSAGE or view.kind > MARK or view.length > RECORD_BYTES_MAX
            or view.length % ALIGNMENT or padding >= ALIGNMENT):
        return BAD_HEADER
    if view.length > room:
        return CUT_OFF
    if check_body and get64(at + view.length - HASH_BYTES) != xxh64(
            body, view.length - HEADER_BYTES - HASH_BYTES, body_seed(keys, view.seq)):
        return BAD_BODY
    view.written_ns = 0
    if view.kind == MESSAGE:
        if view.seq == 0 or view.seq > SEQ_MAX:
            return BAD_HEADER
    else:
        if view.payload_len != TIME_BYTES or parts != TIME_BYTES:
            return BAD_HEADER
        view.written_ns = <int64_t>get64(body)
        if not is_possible_range(view.kind, view.seq, <uint64_t>view.ts, view.written_ns):
            return BAD_HEADER
    if view.flags & DEADLINE:
        view.deadline_ns = <int64_t>get64(body)
        body += DEADLINE_BYTES
    view.subject = body
    view.header = body + view.subject_len
    view.payload = view.header + view.header_len
    return VALID

cdef bint is_possible_range(int kind, uint64_t first, uint64_t last,
                            int64_t written) noexcept nogil:
    """Return whether a log can have written such a record, which is no message."""
    if kind == MARK:                    # a block, a place in it, and a sequence
        return first <= SEQ_MAX and last <= SEQ_MAX and written >= 0
    if kind == FLOOR:
        return 0 < first <= SEQ_MAX + 1
    if kind == REMOVE and first > last:     # empty range: a loss record, docs/formats/record.md
        return first <= SEQ_MAX + 1
    return 0 < first <= SEQ_MAX + 1 and last <= SEQ_MAX and first <= last + 1

cdef bint is_blank(const char* at, size_t n) noexcept nogil:
    cdef size_t i
    for i in range(n):
        if at[i] != 0:
            return False
    return True

cdef void erase_record(char* at, uint32_t length, uint64_t seq, const Keys* keys,
                       const char* noise) noexcept nogil:
    """Overwrite a message of `length` bytes, at least MESSAGE_BYTES_MIN, with as much noise.

    The caller passes length and sequence: the bytes there may be damaged.
    """
    cdef size_t body = length - MESSAGE_BYTES_MIN
    put_header(at, keys, MESSAGE, ERASED, length, seq, <int64_t>get64(at + 16), 0, 0,
               <uint32_t>body)
    memcpy(at + HEADER_BYTES, noise, body)
    seal_body(at, length, keys, seq)

cdef size_t find_record(const char* data, size_t start, size_t end, const Keys* keys) noexcept nogil:
    """Return the next place from `start` on with a valid header; `end` if there is none."""
    cdef RecordView view
    cdef size_t at = (start + ALIGNMENT - 1) & ~(<size_t>(ALIGNMENT - 1))
    cdef int verdict
    while at + HEADER_BYTES <= end:
        if data[at] == MAGIC_0 and data[at + 1] == MAGIC_1:
            verdict = read_record(data + at, end - at, keys, &view, False)
            if verdict == VALID or verdict == CUT_OFF:
                return at
        at += ALIGNMENT
    return end


# -------------------------------------------------------------------- for Python

cdef class RecordKeys:
    """What the checksums of one block are bound to."""

    def __cinit__(self, uint64_t incarnation, uint64_t block):
        make_keys(&self.keys, incarnation, block)


def encode_message(RecordKeys keys not None, uint64_t seq, int64_t ts_ns, bytes subject not None,
                   bytes header not None, bytes payload not None, *, int64_t deadline_ns=0) -> bytes:
    if len(subject) > SUBJECT_BYTES_MAX:
        raise ValueError("the subject is too long for a record")
    cdef size_t length = message_length(len(subject), len(header), len(payload), deadline_ns)
    if length > RECORD_BYTES_MAX:
        raise ValueError("the message is too large for a record")
    cdef bytearray out = bytearray(length)
    put_message(out, length, &keys.keys, seq, ts_ns, subject, len(subject), header, len(header),
                payload, len(payload), deadline_ns)
    return bytes(out)


def encode_range(RecordKeys keys not None, int kind, uint64_t first, uint64_t last,
                 int64_t ts_ns) -> bytes:
    cdef bytearray out = bytearray(RANGE_BYTES)
    put_range(out, &keys.keys, kind, first, last, ts_ns)
    return bytes(out)


def scan(RecordKeys keys not None, const unsigned char[::1] data, size_t start=0) -> list:
    """Return every record from `start` on: (offset, length, verdict, kind, flags, seq, ts, parts).

    After damage the scan continues at the next valid header; the damage has its own entry, with
    kind 0 and the skipped length. Ends at blank space, or at a record that is cut off.
    """
    cdef const char* base = <const char*>&data[0] if data.shape[0] else NULL
    cdef size_t end = data.shape[0], at = start, following
    cdef RecordView view
    cdef int verdict
    found = []
    while at < end:
        verdict = read_record(base + at, end - at, &keys.keys, &view, True)
        if verdict == VALID:
            found.append((at, view.length, "valid", view.kind, view.flags, view.seq, view.ts, (
                view.subject[:view.subject_len], view.header[:view.header_len],
                view.payload[:view.payload_len], view.deadline_ns)))
            at += view.length
            continue
        following = find_record(base, at + ALIGNMENT, end, &keys.keys)
        if verdict == BAD_BODY:
            following = at + view.length
        if following == end and verdict in (BLANK, CUT_OFF, BAD_HEADER):
            found.append((at, end - at, VERDICTS[verdict], 0, 0, 0, 0, None))
            break
        found.append((at, following - at, VERDICTS[verdict], 0, 0, view.seq if verdict == BAD_BODY
                      else 0, 0, None))
        at = following
    return found


def checksum(const unsigned char[::1] data, uint64_t seed=0) -> int:
    """Return the XXH64 hash of the bytes."""
    return xxh64(&data[0] if data.shape[0] else NULL, data.shape[0], seed)
