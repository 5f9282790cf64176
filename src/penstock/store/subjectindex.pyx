"""The subject index of one stream: every subject it holds, found by name or by pattern.

A literal subject is one look-up in a hash table. Patterns are answered by a trie of the same
nodes that route messages; it is planted when the first pattern is asked for, and kept up from
then on. A subject without messages is forgotten, so that streams of ever new subjects do not grow.
"""

from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from penstock.store.seqlist cimport prefetch, seqs_bytes, seqs_free
from penstock.subjects.nodes cimport (
    LITERAL, SUB_SINK, descend, free_tree, hash_bytes, new_node, new_sub, prune, push_front, unlink,
    valid_pattern, walk_overlap, xrealloc, xzalloc,
)

cdef enum:
    SLOTS_MIN = 16
    AT_ONCE = 32               # names looked up together: their waits for memory overlap


cdef bint has_wildcard(const char* pattern, size_t n) noexcept nogil:
    """Whether a token of a valid pattern stands for others."""
    cdef size_t i
    for i in range(n):
        if pattern[i] in (c'*', c'>') and (i == 0 or pattern[i - 1] == c'.') and (
            i + 1 == n or pattern[i + 1] == c'.'
        ):
            return True
    return False


cdef class SubjectIndex:
    def __cinit__(self, *, uint64_t seed=0):
        self.seed = seed

    def __dealloc__(self):
        cdef uint32_t i
        cdef Sub* sub
        cdef Sub* following
        if self.root != NULL:
            sub = free_tree(self.root, NULL)
            while sub != NULL:
                following = sub.next
                free(sub)
                sub = following
        for i in range(self.ids):
            if self.by_id[i] != NULL:
                seqs_free(&self.by_id[i].seqs)
                free(self.by_id[i])
        free(self.by_id)
        free(self.free_ids)
        free(self.slots)
        free(self.found.plain)
        free(self.found.groups)

    def __len__(self) -> int:
        return self.count

    def memory(self) -> int:
        """Bytes held, the subjects themselves and the trie's nodes left out."""
        cdef uint32_t i
        cdef size_t total = (self.ids_cap * sizeof(Subject*) + self.nslots * sizeof(Slot)
                             + self.free_cap * sizeof(uint32_t))
        for i in range(self.ids):
            if self.by_id[i] != NULL:
                total += seqs_bytes(&self.by_id[i].seqs)
        return total

    cdef Subject* find(self, const char* text, size_t n) noexcept nogil:
        return self.find_hashed(text, n, <uint32_t>hash_bytes(text, n, self.seed))

    cdef Subject* find_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil:
        cdef uint32_t i
        cdef Subject* subject
        if self.nslots == 0:
            return NULL
        i = hashed & (self.nslots - 1)
        while self.slots[i].number:
            if self.slots[i].hash == hashed:
                subject = self.by_id[self.slots[i].number - 1]
                if subject.length == n and memcmp(subject_text(subject), text, n) == 0:
                    return subject
            i = (i + 1) & (self.nslots - 1)
        return NULL

    cdef Subject* intern(self, const char* text, size_t n) noexcept nogil:
        """The subject, made if it is new."""
        return self.intern_hashed(text, n, <uint32_t>hash_bytes(text, n, self.seed))

    cdef Subject* intern_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil:
        cdef Subject* subject = self.find_hashed(text, n, hashed)
        if subject != NULL:
            return subject
        subject = <Subject*>xzalloc(sizeof(Subject) + n)
        subject.hash = hashed
        subject.length = <uint32_t>n
        memcpy(subject_text(subject), text, n)
        if self.nfree:
            self.nfree -= 1
            subject.id = self.free_ids[self.nfree]
        else:
            if self.ids == self.ids_cap:
                self.ids_cap = 2 * self.ids_cap + SLOTS_MIN
                self.by_id = <Subject**>xrealloc(self.by_id, self.ids_cap * sizeof(Subject*))
            subject.id = self.ids
            self.ids += 1
        self.by_id[subject.id] = subject
        if 4 * (self.count + 1) > 3 * self.nslots:
            self.grow()
        self.place(subject.id + 1, hashed)
        self.count += 1
        if self.root != NULL:
            self.plant(subject)
        return subject

    cdef void intern_all(self, Name* names, uint32_t n) noexcept nogil:
        """The subjects of many names. One by one they would each wait for memory three times."""
        cdef uint32_t i, at, start, stop
        cdef uint32_t numbers[AT_ONCE]
        cdef Subject* subject
        start = 0
        while start < n:
            stop = min(n, start + AT_ONCE)
            for i in range(start, stop):
                names[i].hash = <uint32_t>hash_bytes(names[i].text, names[i].length, self.seed)
                if self.nslots:
                    prefetch(self.slots + (names[i].hash & (self.nslots - 1)))
            for i in range(start, stop):
                at = names[i].hash & (self.nslots - 1)
                while self.nslots and self.slots[at].number and self.slots[at].hash != names[i].hash:
                    at = (at + 1) & (self.nslots - 1)
                numbers[i - start] = self.slots[at].number if self.nslots else 0
                if numbers[i - start]:
                    prefetch(self.by_id + numbers[i - start] - 1)
            for i in range(start, stop):
                subject = self.by_id[numbers[i - start] - 1] if numbers[i - start] else NULL
                names[i].subject = subject
                if subject != NULL:
                    prefetch(subject)
                    prefetch(subject_text(subject))
            for i in range(start, stop):
                subject = names[i].subject
                if (subject == NULL or subject.length != names[i].length
                        or memcmp(subject_text(subject), names[i].text, names[i].length) != 0):
                    names[i].subject = self.intern_hashed(names[i].text, names[i].length,
                                                          names[i].hash)
            start = stop

    cdef void grow(self) noexcept nogil:
        cdef Slot* old = self.slots
        cdef uint32_t n = self.nslots, i
        self.nslots = max(<uint32_t>SLOTS_MIN, 2 * n)
        self.slots = <Slot*>xzalloc(self.nslots * sizeof(Slot))
        for i in range(n):
            if old[i].number:
                self.place(old[i].number, old[i].hash)
        free(old)

    cdef void place(self, uint32_t number, uint32_t hashed) noexcept nogil:
        cdef uint32_t i = hashed & (self.nslots - 1)
        while self.slots[i].number:
            i = (i + 1) & (self.nslots - 1)
        self.slots[i] = Slot(number, hashed)

    cdef void release(self, Subject* subject) noexcept nogil:
        """Forgets a subject that holds nothing any more."""
        cdef uint32_t mask = self.nslots - 1
        cdef uint32_t i = subject.hash & mask, j, home
        while self.slots[i].number != subject.id + 1:
            i = (i + 1) & mask
        j = i
        while True:
            self.slots[i].number = 0
            while True:
                j = (j + 1) & mask
                if self.slots[j].number == 0:
                    break
                home = self.slots[j].hash & mask
                if ((j - home) & mask) >= ((j - i) & mask):
                    break
            if self.slots[j].number == 0:
                break
            self.slots[i] = self.slots[j]
            i = j
        if subject.leaf != NULL:
            unlink(&subject.leaf.node.plain, subject.leaf)
            prune(subject.leaf.node)
            free(subject.leaf)
        if self.nfree == self.free_cap:
            self.free_cap = 2 * self.free_cap + SLOTS_MIN
            self.free_ids = <uint32_t*>xrealloc(self.free_ids, self.free_cap * sizeof(uint32_t))
        self.free_ids[self.nfree] = subject.id
        self.nfree += 1
        self.by_id[subject.id] = NULL
        self.count -= 1
        seqs_free(&subject.seqs)
        free(subject)

    cdef void plant(self, Subject* subject) noexcept nogil:
        cdef Sub* leaf
        if not valid_pattern(subject_text(subject), subject.length):
            return      # no pattern can find it
        leaf = new_sub(SUB_SINK, subject, b"", 0)
        leaf.node = descend(self.root, subject_text(subject), subject.length, self.seed, True)
        push_front(&leaf.node.plain, leaf)
        subject.leaf = leaf

    cdef uint32_t matching(self, const char* pattern, size_t n) noexcept nogil:
        """How many subjects a pattern matches; `matched` gives them until the next call."""
        cdef uint32_t i
        self.found.nplain = self.found.ngroups = 0
        self.named = NULL
        if not valid_pattern(pattern, n):
            return 0
        if not has_wildcard(pattern, n):
            self.named = self.find(pattern, n)
            return self.named != NULL
        if self.root == NULL:
            self.root = new_node(NULL, LITERAL, b"", 0, 0)
            for i in range(self.ids):
                if self.by_id[i] != NULL:
                    self.plant(self.by_id[i])
        walk_overlap(self.root, pattern, pattern + n, self.seed, &self.found)
        return self.found.nplain

    cdef Subject* matched(self, uint32_t i) noexcept nogil:
        return self.named if self.named != NULL else <Subject*>self.found.plain[i].owner
