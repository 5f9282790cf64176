"""C declarations of the trie's nodes."""

from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memchr


cdef extern from *:
    """
    #include <stdint.h>
    #include <stdlib.h>
    #include <stdio.h>
    #include <string.h>

    /* Running out of memory in the data plane is not survivable: say so and stop. */
    static void *penstock_alloc(size_t n) {
        void *p = malloc(n ? n : 1);
        if (!p) { fputs("penstock: out of memory\\n", stderr); abort(); }
        return p;
    }
    static void *penstock_realloc(void *old, size_t n) {
        void *p = realloc(old, n ? n : 1);
        if (!p) { fputs("penstock: out of memory\\n", stderr); abort(); }
        return p;
    }
    static void *penstock_zalloc(size_t n) {
        void *p = calloc(1, n ? n : 1);
        if (!p) { fputs("penstock: out of memory\\n", stderr); abort(); }
        return p;
    }

    static inline uint64_t penstock_mix(uint64_t a, uint64_t b) {
        unsigned __int128 r = (unsigned __int128)a * b;
        return (uint64_t)r ^ (uint64_t)(r >> 64);
    }
    static inline uint64_t penstock_load8(const char *p) {
        uint64_t v; memcpy(&v, p, 8); return v;
    }
    static inline uint64_t penstock_load4(const char *p) {
        uint32_t v; memcpy(&v, p, 4); return v;
    }
    /* Keyed, so that a peer who does not know the seed cannot make names collide on purpose. */
    static inline uint64_t penstock_hash(const char *p, size_t n, uint64_t seed) {
        uint64_t h = seed ^ (n * 0x9E3779B97F4A7C15ull), a, b;
        while (n > 16) {
            h = penstock_mix(penstock_load8(p) ^ 0xA0761D6478BD642Full, penstock_load8(p + 8) ^ h);
            p += 16; n -= 16;
        }
        if (n >= 8) { a = penstock_load8(p); b = penstock_load8(p + n - 8); }
        else if (n >= 4) { a = penstock_load4(p); b = penstock_load4(p + n - 4); }
        else if (n) {
            a = ((uint64_t)(uint8_t)p[0] << 16) | ((uint64_t)(uint8_t)p[n >> 1] << 8)
              | (uint8_t)p[n - 1];
            b = 0;
        }
        else { a = 0; b = 0; }
        return penstock_mix(a ^ 0xE7037ED1A0B428DBull, b ^ h ^ 0x8EBC6AF09C88C6E3ull);
    }
    """
    void* xalloc "penstock_alloc"(size_t n) noexcept nogil
    void* xrealloc "penstock_realloc"(void* old, size_t n) noexcept nogil
    void* xzalloc "penstock_zalloc"(size_t n) noexcept nogil
    uint64_t hash_bytes "penstock_hash"(const char* p, size_t n, uint64_t seed) noexcept nogil


cdef enum SubKind:
    SUB_HANDLE = 0    # owner is a Subscription object, held by this trie
    SUB_SINK = 1      # owner is a C sink of the router
    SUB_CALLBACK = 2  # owner is a Subscription whose value the router calls

cdef enum SubFlag:
    SUB_REMOVED = 1   # removed from the trie; its memory waits for reclaim()
    SUB_FILTERED = 2  # deliveries must check the owner's deny list
    SUB_LANE = 4      # the value of its Subscription is a Lane of the router
    SUB_SHADOW = 8    # represents a subscription of another account, which imports from this one
    SUB_ROUTED = 16   # its callback gets the routed subject as its first argument


cdef struct Node:
    Node* parent
    Node** slots          # literal children, open addressing
    Node* star
    Node* rest
    Sub* plain
    QueueGroup* groups
    GroupTable* table     # NULL, or an index of the groups by name, if there are many
    uint32_t nslots
    uint32_t nchildren
    uint32_t hash
    uint16_t token_len
    uint8_t role
    # the token's bytes follow

cdef struct GroupTable:
    QueueGroup** slots    # open addressing
    uint32_t nslots
    uint32_t count

cdef struct QueueGroup:
    QueueGroup* next
    QueueGroup* prev
    Sub* head
    uint32_t count
    uint32_t hash
    uint32_t name_len
    # the name's bytes follow

cdef struct Sub:
    Node* node
    QueueGroup* group
    Sub* prev
    Sub* next
    void* owner
    uint64_t delivered
    uint64_t max_deliver  # 0: no limit
    uint16_t sid_len
    uint8_t kind
    uint8_t flags
    # the sid's bytes follow

cdef struct GroupSpan:
    uint32_t start
    uint32_t count

cdef struct Match:
    Sub** plain
    Sub** members         # of all matched queue groups, group after group
    GroupSpan* groups
    uint32_t nplain
    uint32_t nmembers
    uint32_t ngroups
    uint32_t cost         # subscriptions and branches visited; 0: found in the cache

cdef struct Collector:
    Sub** plain
    QueueGroup** groups
    Sub** members
    GroupSpan* spans
    uint32_t nplain
    uint32_t plain_cap
    uint32_t ngroups
    uint32_t groups_cap
    uint32_t members_cap
    uint32_t spans_cap
    uint32_t branches     # wildcard branches that a walk visited


cdef enum Role:
    LITERAL = 0
    STAR = 1
    REST = 2


cdef inline char* sub_sid(Sub* sub) noexcept nogil:
    return <char*>(sub + 1)

cdef inline char* group_name(QueueGroup* group) noexcept nogil:
    return <char*>(group + 1)

cdef inline bint is_star(const char* token, size_t n) noexcept nogil:
    return n == 1 and token[0] == c'*'

cdef inline bint is_rest(const char* token, size_t n) noexcept nogil:
    return n == 1 and token[0] == c'>'

cdef inline size_t token_length(const char* p, const char* end) noexcept nogil:
    cdef const char* dot = <const char*>memchr(p, c'.', end - p)
    return (dot if dot != NULL else end) - p

cdef inline void push_front(Sub** head, Sub* sub) noexcept nogil:
    sub.prev = NULL
    sub.next = head[0]
    if head[0] != NULL:
        head[0].prev = sub
    head[0] = sub

cdef inline void unlink(Sub** head, Sub* sub) noexcept nogil:
    if sub.prev != NULL:
        sub.prev.next = sub.next
    else:
        head[0] = sub.next
    if sub.next != NULL:
        sub.next.prev = sub.prev

cdef bint has_empty_token(const char* subject, size_t n) noexcept nogil
cdef bint valid_pattern(const char* subject, size_t n) noexcept nogil
cdef bint has_wildcard(const char* subject, size_t n) noexcept nogil

cdef Node* new_node(Node* parent, int role, const char* token, size_t n,
                    uint32_t hashed) noexcept nogil
cdef Node* descend(Node* root, const char* p, size_t n, uint64_t seed, bint create) noexcept nogil
cdef void prune(Node* node) noexcept nogil
cdef size_t node_text(Node* node, char* out, size_t cap) noexcept nogil
cdef Sub* free_tree(Node* node, Sub* subs) noexcept nogil

cdef Sub* new_sub(int kind, void* owner, const char* sid, size_t sid_len) noexcept nogil
cdef QueueGroup* group_of(Node* node, const char* name, size_t n, uint32_t hashed,
                          bint create) noexcept nogil
cdef void drop_group(Node* node, QueueGroup* group) noexcept nogil

cdef void walk(Node* level, const char* p, const char* end, uint64_t seed,
               Collector* found) noexcept nogil
cdef void walk_overlap(Node* level, const char* p, const char* end, uint64_t seed,
                       Collector* found) noexcept nogil
cdef void collect_below(Node* level, Collector* found) noexcept nogil
cdef bint any_match(Node* level, const char* p, const char* end, uint64_t seed) noexcept nogil
cdef void gather_groups(Collector* found, Match* out) noexcept nogil
