"""C interface of the lane of a mirror or source."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.router cimport Lane, LaneListener, Message
from penstock.jetstream.streams.lanes.publish_lane cimport StreamLane


cdef class SourceCursor:
    cdef public uint64_t seq             # last sequence taken from the origin
    cdef public uint64_t consumer_seq    # consumer sequence of that delivery
    cdef public uint64_t lag


cdef struct Delivered:
    uint64_t seq
    uint64_t consumer_seq
    uint64_t ts
    uint64_t num_undelivered


cdef class CopyLane(Lane):
    cdef StreamLane stream
    cdef SourceCursor place
    cdef object host
    cdef bytes delivered_by              # consumer name and delivery count 1, as in ack subjects
    cdef bytes note_head                 # source header before the sequence; None: a mirror
    cdef bytes note_tail
    cdef bytes note_end
    cdef public bint is_open
    cdef readonly uint64_t taken         # messages since the last `take_results`
    cdef readonly int64_t heard_ns       # when the last of them arrived

    cdef bint read(self, Message* msg, Delivered* delivered) noexcept
    cdef size_t write_header(self, Message* msg, uint64_t seq, char* at, size_t cap) noexcept
    cdef void store(self, Message* msg, Delivered* delivered, const char* header,
                    size_t header_len) noexcept
