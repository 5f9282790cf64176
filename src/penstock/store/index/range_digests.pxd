"""C declarations of `range_digests`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum:
    RANGE_BITS = 12

cdef uint64_t digest(uint64_t seq, int64_t ts, const char* body, uint32_t subject_len,
                     uint32_t header_len, uint32_t payload_len) noexcept nogil


cdef class RangeDigests:
    cdef dict ranges
    cdef set stale
    cdef uint64_t current     # the range whose sums the next three hold
    cdef uint64_t sum
    cdef uint64_t count
    cdef uint64_t changes

    cdef int note(self, uint64_t seq, uint64_t value) except -1
    cdef int select(self, uint64_t number) except -1
