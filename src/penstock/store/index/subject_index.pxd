"""C declarations of `subject_index`."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.store.index.seq_list cimport SeqList
from penstock.store.index.subject_tally cimport Tally, is_counted
from penstock.subjects.trie_nodes cimport Node

cdef enum:
    TALLIES_MAX = 32

cdef struct Subject:
    SeqList seqs
    Node* node           # in the trie, once it is added
    uint32_t id
    uint32_t hash
    uint32_t length
    bint odd             # has an empty token: no pattern matches it
    # the subject's bytes follow

cdef inline char* subject_text(Subject* subject) noexcept nogil:
    return <char*>(subject + 1)

cdef struct Slot:
    uint32_t number      # id + 1; 0: empty
    uint32_t hash        # of its subject, so that probing and growing read no other memory

cdef struct Name:
    const char* text
    uint32_t length
    uint32_t hash
    Subject* subject     # the subject of this name, once it is looked up

@cython.final
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
    cdef public uint32_t few           # up to so many subjects are visited instead of tallied
    cdef public uint32_t plant_slice   # subjects added to the trie at a time
    cdef Node* root          # created for the first pattern query
    cdef uint32_t planted    # subjects with a lower id are in the trie
    cdef Subject** found
    cdef uint32_t nfound
    cdef uint32_t found_cap
    cdef uint32_t budget     # nodes that a walk may still visit
    cdef Tally* tallies[TALLIES_MAX]   # the most recently used is the last
    cdef uint32_t ntallies
    cdef list tallied        # key of each tally: its patterns joined, or the tuple of many

    cdef Subject* find(self, const char* text, size_t n) noexcept nogil
    cdef Subject* find_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil
    cdef Subject* intern(self, const char* text, size_t n) noexcept nogil
    cdef Subject* intern_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil
    cdef void intern_all(self, Name* names, uint32_t n) noexcept nogil
    cdef void release(self, Subject* subject) noexcept nogil
    cdef SubjectIndex renewed(self)
    cdef bint release_some(self, uint32_t at_most) noexcept nogil
    cdef uint32_t matching(self, const char* pattern, size_t n) noexcept nogil
    cdef uint32_t matching_any(self, tuple filters)
    cdef set few_matching(self, set patterns)
    cdef Subject* matched(self, uint32_t i) noexcept nogil
    cdef Tally* tally(self, list patterns)
    cdef Tally* tally_many(self, tuple filters)
    cdef Tally* used(self, uint32_t i)
    cdef Tally* keep(self, Tally* tally, object key)
    cdef void forget_tallies(self)
    cdef void place(self, uint32_t number, uint32_t hashed) noexcept nogil
    cdef void grow(self) noexcept nogil
    cdef void enter(self, Subject* subject) noexcept nogil
    cdef void plant(self, Subject* subject) noexcept nogil
    cdef bint plant_some(self) noexcept nogil
    cdef bint walk(self, Node* level, const char* p, const char* end) noexcept nogil
    cdef bint walk_below(self, Node* level) noexcept nogil
    cdef bint go_on(self, Node* node, const char* p, const char* end) noexcept nogil
    cdef bint take(self, Node* node) noexcept nogil
    cdef void add_found(self, Subject* subject) noexcept nogil
    cdef bint is_few(self, const char* pattern, size_t n) noexcept nogil
    cdef void scan(self, const char* pattern, size_t n) noexcept nogil

cdef inline void count_message(SubjectIndex index, uint32_t number, int64_t by) noexcept nogil:
    """Add `by` to the message counts of all tallies that include the subject."""
    cdef uint32_t i
    for i in range(index.ntallies):
        if is_counted(index.tallies[i], number):
            index.tallies[i].msgs += by
