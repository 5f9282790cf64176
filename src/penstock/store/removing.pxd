"""C surface of taking messages out."""

from libc.stdint cimport uint64_t

from penstock.store.recordlog cimport RecordLog

cdef uint64_t take_out(RecordLog log, uint64_t seq) noexcept nogil
