"""C declarations of `message_log`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.store.index.record_log cimport RecordLog
from penstock.store.index.subject_tally cimport Tally


cdef enum:
    FILTERS_FEW_MAX = 8        # filters tested one by one; more always use a tally

cdef class MessageLog(RecordLog):
    cdef uint64_t find_next(self, tuple filters, uint64_t start)
    cdef bint is_wanted(self, uint64_t seq, list patterns)
    cdef Tally* tally_of(self, list patterns)
    cdef uint64_t tallied_between(self, Tally* tally, uint64_t start, uint64_t last) noexcept nogil
    cdef uint64_t count_tallied(self, Tally* tally, uint64_t first, uint64_t last) noexcept nogil
    cdef uint64_t tallied_from(self, Tally* tally, uint64_t start) noexcept nogil
    cdef uint64_t tallied_before(self, Tally* tally, uint64_t seq) noexcept nogil
