"""C interface of the end of a turn."""

from libc.stdint cimport int64_t

cdef enum:
    NOTABLE = 50_000              # ns; shorter waits of a turn for the disk are not recorded


cdef class CommitPace:
    cdef int64_t usual_ns         # average duration of recent commits
    cdef public int running       # pieces of file work that threads have, or that wait for one

    cdef bint may_wait(self) noexcept
    cdef void record(self, int64_t span_ns) noexcept


cdef class TurnListener:
    cdef readonly CommitPace pace
    cdef readonly CommitPace write_pace

    cpdef object calls_ended(self)
