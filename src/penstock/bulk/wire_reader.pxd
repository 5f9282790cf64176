# What a compiled subclass of `WireReader` needs: its buffer and the current delivery.

from libc.stdint cimport int32_t, int64_t


cdef enum:
    NAMES_BYTES_MAX = 512  # longer stream and consumer names are parsed in every delivery


cdef enum Step:
    WANTING = 0  # more bytes
    STEP_MESSAGE = 1
    STEP_LINE = 2
    STEP_FULL = 6
    STEP_CAUGHT_UP = 7
    STEP_PAST_END = 8
    STEP_GAP = 9
    STEP_UNKNOWN = 10
    BROKEN = 32
    NO_MEMORY = 33


cdef struct Span:
    const char* data
    size_t size


cdef struct Delivery:
    long long sid
    Span subject
    Span reply
    Span header
    Span payload


cdef struct Column:
    char* data
    size_t used
    size_t size
    int32_t* offsets


cdef class ServerItem:
    cdef readonly int kind
    cdef readonly long long sid
    cdef readonly str subject
    cdef readonly str reply
    cdef readonly bytes header
    cdef readonly bytes payload


cdef class WireReader:
    cdef char* room
    cdef size_t size
    cdef size_t start
    cdef size_t end
    cdef size_t wanted  # total length of the first frame in the buffer, once known
    cdef size_t frame_bytes_max
    cdef Delivery delivery
    cdef long long sid  # the followed subscription; 0 for none
    cdef int64_t expected
    cdef int64_t stop_seq
    cdef bint marking
    cdef size_t names_bytes  # of the followed consumer's reply subjects; 0 if not known
    cdef char names[NAMES_BYTES_MAX]
    cdef Py_ssize_t records_max
    cdef size_t bytes_max
    cdef Py_ssize_t count
    cdef int64_t pending
    cdef int64_t* seqs
    cdef int64_t* times
    cdef Column subjects
    cdef Column headers
    cdef Column payloads
    cdef readonly int64_t gap_at
    cdef readonly int64_t last_seq         # of the followed consumer's last delivery
    cdef readonly int64_t delivered_bytes  # of all its deliveries

    cdef int grow(self, size_t size) except -1
    cdef Step advance(self) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    cdef Step read_delivery(self, const char* line, size_t line_bytes) noexcept nogil
    cdef Step sort_out(self) noexcept nogil
    cdef void know_names(self, const Span* reply) noexcept nogil
    cdef bint read_known_position(self, const Span* reply, int64_t* position) noexcept nogil
    cdef bint gather(self, const int64_t* position) noexcept nogil
    cdef object control_item(self)


cdef long long number_in(const char* data, size_t size) noexcept nogil
