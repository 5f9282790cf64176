"""Copies runs of messages between a store and an archive, without Python objects.

`copy_out` encodes visible messages of a log as archive entries; `copy_in` stores entries. Both stop
before the first message that needs more than a copy (`is_ordinary`): one that is cold, damaged, out
of order or affected by a limit. `stream_archive`, `snapshot_session` and `restore_stream` handle
that one; they define the behaviour of this module, and a test compares them. Both functions process
a bounded number of bytes, so that others have their turn.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.record_codec cimport MESSAGE, RecordView, read_record
from penstock.store.index.block_list cimport Block, Entry
from penstock.store.index.message_log cimport MessageLog
from penstock.store.index.subject_index cimport Subject
from penstock.subjects.trie_nodes cimport has_empty_token, has_wildcard

cdef enum:
    NUMBER_BYTES_MAX = 10
    HEAD_NUMBERS = 5
    HEAD_ROOM = 50              # for five numbers
    SUBJECT_BYTES_MAX = 16383   # longer ones are left to the Python modules
    LOWEST_PRINTED = 33         # a subject has no blanks or control characters
    LAST_ASCII = 126


cdef struct Head:
    uint64_t name_len
    uint64_t time               # zigzag
    uint64_t seq
    uint64_t header_len
    uint64_t payload_len


# -- out

cdef inline uint8_t* put_varint(uint8_t* at, uint64_t value) noexcept nogil:
    while value > 127:
        at[0] = <uint8_t>(value & 127 | 128)
        value >>= 7
        at += 1
    at[0] = <uint8_t>value
    return at + 1

cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)

cdef inline uint8_t* put_entry(uint8_t* at, const RecordView* view) noexcept nogil:
    at = put_varint(at, view.subject_len)
    at = put_varint(at, zigzag(view.ts))
    at = put_varint(at, view.seq)
    at = put_varint(at, view.header_len)
    at = put_varint(at, view.payload_len)
    memcpy(at, view.subject, view.subject_len)
    at += view.subject_len
    memcpy(at, view.header, view.header_len)
    at += view.header_len
    memcpy(at, view.payload, view.payload_len)
    return at + view.payload_len

cdef size_t write_run(MessageLog log, uint64_t* seq, uint64_t last, uint8_t* out,
                      size_t room) noexcept nogil:
    """Write entries from `seq` on; set `seq` to the first sequence not written."""
    cdef uint8_t* at = out
    cdef Block* block = NULL
    cdef Entry* entry
    cdef RecordView view
    cdef uint64_t found
    while seq[0] <= last:
        found = log.live_from(seq[0])
        if found == 0 or found > last:
            break
        seq[0] = found
        entry = log.entry_at(found, &block)
        if entry == NULL or block.image == NULL:
            break
        if room - (at - out) < entry.length + <size_t>HEAD_ROOM:
            break
        if read_record(block.image + entry.offset, entry.length, &block.keys, &view,
                       not block.verified) != 0 or view.kind != MESSAGE:
            break
        at = put_entry(at, &view)
        seq[0] = found + 1
    return at - out


def copy_out(MessageLog log not None, uint64_t start, uint64_t last, size_t bytes_max):
    """Return entries of visible messages from `start` to `last`, up to `bytes_max`, and the
    sequence at which it stopped: a message not in memory, damaged or too large, or the one after
    the last."""
    cdef uint64_t seq = start
    cdef bytes out = PyBytes_FromStringAndSize(NULL, bytes_max)
    cdef uint8_t* at = <uint8_t*>PyBytes_AS_STRING(out)
    cdef size_t n
    last = min(last, log.visible_max)
    with nogil:
        n = write_run(log, &seq, last, at, bytes_max)
    return out[:n], seq


# -- in

cdef inline bint get_varint(const uint8_t** at, const uint8_t* end, uint64_t* value) noexcept nogil:
    """Read a number; return False if it is incomplete, or longer than 64 bits."""
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end and shift < 64:
        byte = at[0][0]
        at[0] += 1
        value[0] |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return shift < 63 or byte < 2
        shift += 7
    return False

cdef inline bint get_head(const uint8_t** at, const uint8_t* end, Head* head) noexcept nogil:
    return (get_varint(at, end, &head.name_len) and get_varint(at, end, &head.time)
            and get_varint(at, end, &head.seq) and get_varint(at, end, &head.header_len)
            and get_varint(at, end, &head.payload_len))

cdef bint is_plain_subject(const char* subject, size_t n) noexcept nogil:
    """Return whether a subject is certainly valid: printable ASCII, literal, no empty tokens."""
    cdef size_t i
    for i in range(n):
        if not LOWEST_PRINTED <= <uint8_t>subject[i] <= LAST_ASCII:
            return False
    return n > 0 and not has_wildcard(subject, n) and not has_empty_token(subject, n)


cdef class ArchiveIntake:
    """Stores entries in a log, within the given limits."""

    cdef MessageLog log
    cdef int64_t message_bytes_max
    cdef bint takes_headers
    cdef int64_t msgs_max
    cdef int64_t bytes_max
    cdef int64_t per_subject_max
    cdef readonly uint64_t taken_bytes

    def __cinit__(self, MessageLog log not None, *, int64_t message_bytes_max,
                  bint takes_headers, int64_t msgs_max, int64_t bytes_max,
                  int64_t per_subject_max):
        """A limit below 1 is no limit. `taken_bytes` counts headers and payloads."""
        self.log = log
        self.message_bytes_max = message_bytes_max
        self.takes_headers = takes_headers
        self.msgs_max = msgs_max
        self.bytes_max = bytes_max
        self.per_subject_max = per_subject_max

    cdef bint is_ordinary(self, const Head* head, const char* subject) noexcept nogil:
        """Whether it can be stored unchanged, without removing another message."""
        cdef Subject* known
        cdef int64_t ts = <int64_t>(head.time >> 1)
        if head.time & 1 or ts < self.log.last_ts_ns:
            return False
        if not self.log.last_seq < head.seq <= SEQ_MAX or (head.header_len and not self.takes_headers):
            return False
        if 0 < self.msgs_max <= <int64_t>self.log.msgs:
            return False
        if 0 < self.bytes_max < <int64_t>(self.log.total_size + self.log.size_of(
                head.name_len, head.header_len, head.payload_len)):
            return False
        if not is_plain_subject(subject, head.name_len):
            return False
        if self.per_subject_max > 0:
            known = self.log.subjects.find(subject, head.name_len)
            if known != NULL and known.seqs.count >= <uint64_t>self.per_subject_max:
                return False
        return True

    def copy_in(self, const uint8_t[::1] data not None, Py_ssize_t start, size_t bytes_max):
        """Store complete, ordinary entries from an offset on, until `bytes_max` bytes are read;
        return the offset after them."""
        cdef const uint8_t* base = &data[0] if data.shape[0] else NULL
        cdef const uint8_t* end = base + data.shape[0]
        cdef const uint8_t* at = base + start
        cdef const uint8_t* body
        cdef const char* subject
        cdef Head head
        cdef uint64_t size
        if not 0 <= start <= data.shape[0]:
            raise ValueError("an offset outside")
        while at < end and at < base + start + bytes_max:
            body = at
            if not get_head(&body, end, &head):
                break
            if (head.name_len > SUBJECT_BYTES_MAX
                    or head.header_len > <uint64_t>self.message_bytes_max
                    or head.payload_len > <uint64_t>self.message_bytes_max - head.header_len):
                break
            size = head.header_len + head.payload_len
            if <uint64_t>(end - body) < head.name_len + size:
                break
            subject = <const char*>body
            if not self.is_ordinary(&head, subject):
                break
            body += head.name_len
            self.log.put(subject, head.name_len, <const char*>body, head.header_len,
                         <const char*>body + head.header_len, head.payload_len,
                         <int64_t>(head.time >> 1), head.seq, 0)
            self.taken_bytes += size
            at = body + size
        return at - base
