"""C declarations of SubList, for the compiled modules above it."""

cimport cython
from libc.stdint cimport uint32_t, uint64_t

from penstock.subjects.trie_nodes cimport Collector, Match, Node, QueueGroup, Sub


cdef struct CachedMatch:
    CachedMatch* next_dead
    uint64_t hash
    uint64_t root_stamp
    uint64_t bucket_stamp
    size_t bytes
    Match match
    uint32_t key_len
    uint32_t bucket
    # arrays and key follow

cdef struct CacheSlot:
    uint64_t hash
    CachedMatch* entry

cdef str sub_subject(Sub* sub)
cdef object sub_queue(Sub* sub)


cdef class Subscription:
    cdef readonly str subject
    cdef readonly object queue
    cdef readonly object value
    cdef Sub* sub
    cdef void* home        # the SubList it is in; not a reference


@cython.final
cdef class SubList:
    cdef Node* root
    cdef uint64_t seed
    cdef uint64_t inserts
    cdef uint64_t removes
    cdef uint64_t matches
    cdef uint64_t hits
    cdef uint32_t count
    cdef CacheSlot* cache
    cdef uint32_t cached
    cdef size_t cache_bytes
    cdef uint64_t root_stamp
    cdef uint64_t* stamps
    cdef uint32_t* door
    cdef Collector found
    cdef Sub* dead_subs
    cdef CachedMatch* dead_matches
    cdef char* text            # scratch for a node's subject
    cdef size_t text_cap
    cdef set handles           # the Python subscriptions, visible to the garbage collector
    cdef dict watched
    cdef list interest_changes

    cdef list collected(self)
    cdef bint exact_interest(self, str subject, object queue)
    cdef uint32_t name_hash(self, bytes name)
    cdef int note_interest(self, Node* node, QueueGroup* group, bint present) except -1
    cdef size_t subject_text(self, Node* node) noexcept nogil
    cdef bint fresh(self, CachedMatch* entry) noexcept nogil
    cdef bint asked_before(self, uint64_t hashed) noexcept nogil
    cdef uint32_t bucket_of(self, const char* subject, size_t n) noexcept nogil
    cdef void remember(self, CacheSlot* slots, uint64_t hashed, const char* subject, size_t n,
                       Match* found) noexcept nogil
    cdef void evict(self, CacheSlot* slot) noexcept nogil
    cdef void clear_cache(self) noexcept nogil
    cdef void touch(self, const char* subject, size_t n) noexcept nogil

    cdef int add(self, Sub* sub, const char* subject, size_t n,
                 const char* queue, size_t queue_len) except -1
    cdef void drop(self, Sub* sub) noexcept
    cdef void find(self, const char* subject, size_t n, Match* out) noexcept nogil
    cdef bint interested(self, const char* subject, size_t n) noexcept nogil
    cdef void reclaim(self) noexcept nogil
