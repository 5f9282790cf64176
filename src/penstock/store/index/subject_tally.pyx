"""Tallies: a bit for every subject that matches a set of patterns, and their total message count.

Consumers query patterns that match many subjects again and again: how many messages are pending,
which is the next. A tally returns its count, or tests one bit per entry, instead of visiting the
subjects. The owner of the subject index keeps it up to date, for every new subject and message.
A large set of patterns is stored in a trie, so that the cost of a new subject does not grow with
their number.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memset

from penstock.subjects.trie_nodes cimport (
    LITERAL, Sub, any_match, descend, is_rest, is_star, new_node, token_length, valid_pattern, xalloc,
    xrealloc, xzalloc,
)

cdef enum:
    ROOM_MIN = 1024


cdef Pattern make_pattern(const char* text, size_t n) noexcept nogil:
    cdef Pattern pattern
    cdef const char* p = text
    cdef const char* end = text + n
    cdef size_t length
    pattern.text = <char*>xalloc(n)
    memcpy(pattern.text, text, n)
    pattern.length = <uint32_t>n
    pattern.prefix = <uint32_t>n
    pattern.never = not valid_pattern(text, n)
    while not pattern.never:
        length = token_length(p, end)
        if is_star(p, length) or is_rest(p, length):
            pattern.prefix = <uint32_t>(p - text)
            break
        if p + length == end:
            break
        p += length + 1
    return pattern

cdef void free_pattern(Pattern* pattern) noexcept nogil:
    free(pattern.text)

cdef bint fits(const Pattern* pattern, const char* subject, size_t n) noexcept nogil:
    """Return whether a pattern matches a subject that has no empty token."""
    cdef const char* p = pattern.text + pattern.prefix
    cdef const char* s = subject + pattern.prefix
    cdef const char* pattern_end = pattern.text + pattern.length
    cdef const char* subject_end = subject + n
    cdef size_t wanted, found
    if pattern.never or n < pattern.prefix or memcmp(pattern.text, subject, pattern.prefix) != 0:
        return False
    if p == pattern_end:
        return s == subject_end
    while s < subject_end:
        wanted = token_length(p, pattern_end)
        if is_rest(p, wanted):
            return True
        found = token_length(s, subject_end)
        if not is_star(p, wanted) and (wanted != found or memcmp(p, s, wanted) != 0):
            return False
        p += wanted
        s += found
        if p == pattern_end or s == subject_end:
            return p == pattern_end and s == subject_end
        p += 1
        s += 1
    return False


cdef Tally* new_tally(uint32_t npatterns) noexcept nogil:
    """Return an empty tally; the caller sets its patterns."""
    cdef Tally* tally = <Tally*>xzalloc(sizeof(Tally))
    tally.patterns = <Pattern*>xzalloc(npatterns * sizeof(Pattern))
    tally.npatterns = npatterns
    return tally

cdef Tally* new_large_tally(uint64_t seed) noexcept nogil:
    """Return an empty tally with a trie; `add_pattern` adds its patterns."""
    cdef Tally* tally = new_tally(0)
    tally.root = new_node(NULL, LITERAL, b"", 0, 0)
    tally.seed = seed
    return tally

cdef void add_pattern(Tally* tally, const char* text, size_t n) noexcept nogil:
    if valid_pattern(text, n):
        # A marker: tallies never read the member itself.
        descend(tally.root, text, n, tally.seed, True).plain = <Sub*>tally

cdef void free_nodes(Node* node) noexcept nogil:
    cdef uint32_t i
    for i in range(node.nslots):
        if node.slots[i] != NULL:
            free_nodes(node.slots[i])
    if node.star != NULL:
        free_nodes(node.star)
    if node.rest != NULL:
        free_nodes(node.rest)
    free(node.slots)
    free(node)

cdef void free_tally(Tally* tally) noexcept nogil:
    cdef uint32_t i
    if tally.root != NULL:
        free_nodes(tally.root)
    for i in range(tally.npatterns):
        free_pattern(&tally.patterns[i])
    free(tally.patterns)
    free(tally.bits)
    free(tally)

cdef void make_room(Tally* tally, uint32_t number) noexcept nogil:
    cdef uint32_t room = max(max(<uint32_t>ROOM_MIN, 2 * tally.room), (number | 63) + 1)
    tally.bits = <uint64_t*>xrealloc(tally.bits, room // 8)
    memset(<char*>tally.bits + tally.room // 8, 0, (room - tally.room) // 8)
    tally.room = room

cdef bint decide(Tally* tally, uint32_t number, const char* subject, size_t n) noexcept nogil:
    """Record and return whether the subject that now has this number matches any pattern."""
    cdef uint32_t i
    rule_out(tally, number)
    if tally.root != NULL:
        if not any_match(tally.root, subject, subject + n, tally.seed):
            return False
        count_in(tally, number)
        return True
    for i in range(tally.npatterns):
        if fits(&tally.patterns[i], subject, n):
            count_in(tally, number)
            return True
    return False

cdef void count_in(Tally* tally, uint32_t number) noexcept nogil:
    """Set the bit of a subject number that already has space."""
    tally.bits[number >> 6] |= <uint64_t>1 << (number & 63)

cdef void rule_out(Tally* tally, uint32_t number) noexcept nogil:
    """Clear the bit of a subject number; make space for it if needed."""
    if number >= tally.room:
        make_room(tally, number)
    tally.bits[number >> 6] &= ~(<uint64_t>1 << (number & 63))
