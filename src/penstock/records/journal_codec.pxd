"""C declarations of `journal_codec`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

cdef enum JournalKind:
    TURN = 1        # head of a turn: its number, its lengths, the last durable turn
    STATE = 2       # the latest state of a group, which replaces earlier ones
    CUT = 3         # the entries of a group from its index on are void
    FLOOR = 4       # the entries of a group up to its index are no longer needed
    FORGET = 5      # nothing of the group is needed
    ENTRY = 16      # this kind and all above: an entry of a group

cdef struct JournalKeys:
    uint64_t incarnation
    uint64_t segment
    uint64_t seed

cdef struct JournalView:
    int kind
    uint32_t length       # of the whole record
    uint32_t payload_len
    uint64_t group
    uint64_t index
    uint64_t term
    const char* payload


cdef class SegmentKeys:
    cdef JournalKeys keys


cdef class TurnBuffer:
    cdef readonly bytearray data
    cdef readonly uint64_t place
    cdef readonly size_t used
    cdef readonly size_t capacity
    cdef readonly uint32_t records
    cdef JournalKeys keys
    cdef size_t room

    cdef int grow(self, size_t needed) except -1
    cdef int64_t add(self, int kind, uint64_t group, uint64_t index, uint64_t term,
                                const char* payload, size_t n) except? -2
