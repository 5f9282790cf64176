# The window of unanswered publishes; `Frames` reads it to select the publishes to send again.

from libc.stdint cimport int64_t


cdef class Window:
    cdef unsigned char* waiting  # one slot per number: 1 if its reply is outstanding
    cdef int64_t slots
    cdef bytes ack_start
    cdef const char* start
    cdef size_t start_bytes
    cdef readonly int64_t oldest
    cdef readonly int64_t next
    cdef readonly int64_t answered
    cdef readonly int64_t duplicates
    cdef int64_t* repeats  # pairs: the number of a duplicate, the sequence of its original
    cdef Py_ssize_t repeat_count
    cdef Py_ssize_t repeat_room
    cdef bint lists_stored
    cdef int64_t* stored  # pairs: the first and the last sequence of a run of stored messages
    cdef Py_ssize_t stored_count
    cdef Py_ssize_t stored_room

    cdef bint awaits(self, int64_t number) noexcept nogil
    cdef bint answer(self, int64_t number) noexcept nogil
    cdef bint note_repeat(self, int64_t number, int64_t sequence) noexcept nogil
    cdef bint note_stored(self, int64_t sequence) noexcept nogil
