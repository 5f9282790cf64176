"""C declarations of `subject_tally`."""

from libc.stdint cimport uint32_t, uint64_t

from penstock.subjects.trie_nodes cimport Node

cdef struct Pattern:
    char* text
    uint32_t length
    uint32_t prefix          # bytes before the first wildcard token
    bint never               # not a valid pattern: matches nothing

cdef struct Tally:
    Pattern* patterns
    uint32_t npatterns
    Node* root               # NULL, or a trie of all patterns if there are many
    uint64_t seed            # of the trie's hashes
    uint64_t* bits           # indexed by subject number
    uint32_t room            # number of bits
    uint64_t msgs            # of all subjects with a bit

cdef inline bint is_counted(Tally* tally, uint32_t number) noexcept nogil:
    """Return whether any pattern matches this subject of the index."""
    return tally.bits[number >> 6] >> (number & 63) & 1

cdef Pattern make_pattern(const char* text, size_t n) noexcept nogil
cdef void free_pattern(Pattern* pattern) noexcept nogil
cdef bint fits(const Pattern* pattern, const char* subject, size_t n) noexcept nogil
cdef Tally* new_tally(uint32_t npatterns) noexcept nogil
cdef Tally* new_large_tally(uint64_t seed) noexcept nogil
cdef void add_pattern(Tally* tally, const char* text, size_t n) noexcept nogil
cdef void free_nodes(Node* node) noexcept nogil
cdef void free_tally(Tally* tally) noexcept nogil
cdef void count_in(Tally* tally, uint32_t number) noexcept nogil
cdef bint decide(Tally* tally, uint32_t number, const char* subject, size_t n) noexcept nogil
cdef void rule_out(Tally* tally, uint32_t number) noexcept nogil
