"""C declarations of `removal_index`."""

from libc.stdint cimport uint64_t

from penstock.store.index.record_log cimport RecordLog

cdef uint64_t take_out(RecordLog log, uint64_t seq) noexcept nogil
