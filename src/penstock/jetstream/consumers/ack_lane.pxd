"""C interface of the ack lane."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from penstock.broker.router cimport Lane, LaneListener, Message


cdef struct AckSpan:
    uint64_t first            # stream sequences
    uint64_t last
    uint64_t consumer_seq     # of the last one


cdef class AckBox:
    cdef readonly str stream
    cdef readonly str consumer
    cdef bytes key
    cdef AckSpan* spans
    cdef uint32_t count
    cdef uint32_t cap

    cdef void add(self, uint64_t seq, uint64_t consumer_seq) noexcept nogil


@cython.final
cdef class AckLane(Lane):
    cdef bytes scope          # "domain.hash" of the account, in v2 ack subjects
    cdef dict boxes           # "stream.consumer" -> AckBox
    cdef AckBox latest        # most acks are for the same consumer as the previous one
    cdef list filled          # boxes that contain acks

    cdef bint is_ours(self, const char* scope, size_t n) noexcept
    cdef AckBox find(self, const char* key, size_t n)
