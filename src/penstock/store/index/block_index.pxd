"""C declarations of `block_index`: a growing byte buffer."""

from libc.stdint cimport uint8_t, uint64_t

cdef struct Growing:
    char* data
    size_t used
    size_t cap

cdef char* more(Growing* out, size_t n) noexcept nogil
cdef void put_varint(Growing* out, uint64_t value) noexcept nogil
