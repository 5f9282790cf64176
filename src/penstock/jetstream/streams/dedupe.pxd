"""C interface of the duplicate window."""

from libc.stdint cimport int64_t, uint32_t, uint64_t


cdef struct SeenId:
    SeenId* chained       # next entry in the same slot
    SeenId* older
    SeenId* newer
    uint64_t seq
    int64_t ts_ns
    uint32_t hash
    uint32_t length
    # the bytes of the id follow


cdef class DuplicateWindow:
    cdef int64_t _window_ns
    cdef uint64_t seed
    cdef SeenId** slots       # a power of two; at least as many slots as ids
    cdef uint32_t nslots
    cdef uint32_t count
    cdef SeenId* oldest
    cdef SeenId* newest
    cdef char* last           # id of the stream's last message
    cdef uint32_t last_len    # 0: the last message has no id
    cdef uint32_t last_cap

    cdef uint64_t seq_of(self, const char* text, size_t n, int64_t now_ns) noexcept nogil
    cdef void put(self, const char* text, size_t n, uint64_t seq, int64_t ts_ns) noexcept nogil
    cdef void note_last(self, const char* text, size_t n) noexcept nogil
    cdef bint is_last(self, const char* text, size_t n) noexcept nogil
    cdef SeenId** place_of(self, const char* text, size_t n, uint32_t hashed) noexcept nogil
    cdef void take_out(self, SeenId** place) noexcept nogil
    cdef void forget(self, int64_t now_ns, uint32_t at_most) noexcept nogil
    cdef void grow(self) noexcept nogil
    cdef void forget_all(self) noexcept nogil
