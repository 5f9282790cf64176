"""C declarations of `message_pack`."""

from libc.stdint cimport uint32_t


cdef struct Packed:
    const char* subject
    const char* header
    const char* payload
    uint32_t subject_len
    uint32_t header_len
    uint32_t payload_len


cdef const char* read_packed(const char* at, const char* end, Packed* found) noexcept nogil


cdef class Packer:
    cdef char* data
    cdef size_t used
    cdef size_t cap
    cdef readonly uint32_t count

    cdef void put(self, Packed* one) noexcept nogil
