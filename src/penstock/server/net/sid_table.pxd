"""C declarations of SidTable: the subscription ids of one connection."""

from libc.stdint cimport uint32_t, uint64_t

from penstock.subjects.trie_nodes cimport Sub


cdef struct SidTable:
    Sub** slots
    uint32_t cap
    uint32_t count
    uint64_t seed         # secret, so that a client cannot choose sids that collide

cdef Sub* sid_find(SidTable* table, const char* sid, size_t n) noexcept nogil
cdef void sid_add(SidTable* table, Sub* sub) noexcept nogil
cdef void sid_remove(SidTable* table, Sub* sub) noexcept nogil
