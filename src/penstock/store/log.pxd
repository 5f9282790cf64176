"""C surface of the message log."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.store.recordlog cimport RecordLog


cdef class MessageLog(RecordLog):
    cdef uint64_t find_next(self, tuple filters, uint64_t start)
    cdef bint is_wanted(self, uint64_t seq, list patterns)
