"""C declarations of `record_codec`."""

from libc.stdint cimport int64_t, uint16_t, uint32_t, uint64_t

cdef enum RecordKind:
    MESSAGE = 1
    SKIP = 2        # assigns sequences without messages
    REMOVE = 3      # the sequences it names are removed
    FLOOR = 4       # everything below its sequence is removed
    RESERVE = 5     # sequences that may be visible before their messages are durable
    MARK = 6        # a block and a place in it: everything before was durable at that time

cdef enum RecordFlag:
    ERASED = 1      # subject and payload were overwritten
    DEADLINE = 2    # the body starts with the message's expiry time

cdef enum:
    MESSAGE_BYTES_MIN = 48      # header and hash, without the parts of a message
    RANGE_BYTES = 56            # header, timestamp, hash
    DEADLINE_BYTES = 8
    ALIGNMENT = 8               # of every record; its length is a multiple of it
    SUBJECT_BYTES_MAX = 65535
    RECORD_BYTES_MAX = 268435456

cdef enum Verdict:   # result of read_record
    VALID = 0
    BLANK = 1        # only zeros: space that was never written
    BAD_HEADER = 2
    BAD_BODY = 3     # the header is valid, the body is not
    CUT_OFF = 4      # the header is valid, the record is longer than the available bytes

cdef struct Keys:
    uint64_t incarnation
    uint64_t block
    uint64_t header_seed

cdef struct RecordView:
    int kind
    int flags
    uint32_t length       # of the whole record
    uint64_t seq
    int64_t ts            # of a range: its last sequence
    int64_t deadline_ns   # 0: none
    int64_t written_ns    # of a range: when it was written
    const char* subject
    const char* header
    const char* payload
    uint32_t subject_len
    uint32_t header_len
    uint32_t payload_len

cdef void make_keys(Keys* keys, uint64_t incarnation, uint64_t block) noexcept nogil
cdef size_t message_length(size_t subject_len, size_t header_len, size_t payload_len,
                           int64_t deadline_ns) noexcept nogil
cdef void put_message(char* at, size_t length, const Keys* keys, uint64_t seq, int64_t ts,
                      const char* subject, size_t subject_len, const char* header,
                      size_t header_len, const char* payload, size_t payload_len,
                      int64_t deadline_ns) noexcept nogil
cdef size_t put_range(char* at, const Keys* keys, int kind, uint64_t first, uint64_t last,
                      int64_t ts) noexcept nogil
cdef int read_record(const char* at, size_t room, const Keys* keys, RecordView* view,
                     bint check_body) noexcept nogil
cdef bint is_possible_range(int kind, uint64_t first, uint64_t last, int64_t written) noexcept nogil
cdef void erase_record(char* at, uint32_t length, uint64_t seq, const Keys* keys,
                       const char* noise) noexcept nogil
cdef size_t find_record(const char* data, size_t start, size_t end, const Keys* keys) noexcept nogil


cdef class RecordKeys:
    cdef Keys keys
