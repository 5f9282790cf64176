"""C surface of the subject index: which subjects a stream holds, and their sequences."""

from libc.stdint cimport uint32_t, uint64_t

from penstock.store.seqlist cimport SeqList
from penstock.subjects.nodes cimport Collector, Node, Sub

cdef struct Subject:
    SeqList seqs
    Sub* leaf            # in the trie, once there is one
    uint32_t id
    uint32_t hash
    uint32_t length
    # the subject's bytes follow

cdef inline char* subject_text(Subject* subject) noexcept nogil:
    return <char*>(subject + 1)

cdef struct Slot:
    uint32_t number      # id + 1; 0: empty
    uint32_t hash        # of its subject, so that probing and growing look at no other memory

cdef struct Name:
    const char* text
    uint32_t length
    uint32_t hash
    Subject* subject     # whose name this is, once it was looked up

cdef class SubjectIndex:
    cdef uint64_t seed
    cdef Subject** by_id
    cdef uint32_t ids
    cdef uint32_t ids_cap
    cdef uint32_t* free_ids
    cdef uint32_t nfree
    cdef uint32_t free_cap
    cdef Slot* slots         # open addressing
    cdef uint32_t nslots
    cdef uint32_t count
    cdef Node* root          # made when a wildcard is first asked for
    cdef Collector found
    cdef Subject* named      # found by name, not by walking

    cdef Subject* find(self, const char* text, size_t n) noexcept nogil
    cdef Subject* find_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil
    cdef Subject* intern(self, const char* text, size_t n) noexcept nogil
    cdef Subject* intern_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil
    cdef void intern_all(self, Name* names, uint32_t n) noexcept nogil
    cdef void release(self, Subject* subject) noexcept nogil
    cdef uint32_t matching(self, const char* pattern, size_t n) noexcept nogil
    cdef Subject* matched(self, uint32_t i) noexcept nogil
    cdef void place(self, uint32_t number, uint32_t hashed) noexcept nogil
    cdef void grow(self) noexcept nogil
    cdef void plant(self, Subject* subject) noexcept nogil
