"""The subject index of one stream: every subject it holds, found by name or by pattern.

A literal subject is one look-up in a hash table. A pattern is resolved in one of three ways. If it
matches few subjects, a trie (the same nodes that route messages) finds them. If it matches many,
a scan visits all subjects. For queries that repeat, such as the next match or the pending count,
the index keeps a tally instead. The first pattern that needs the trie starts its construction, in
slices, so that no query waits for a million subjects.

The index removes a subject without messages, so that streams with ever new subjects do not grow.
"""

cimport cython
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove

from penstock.store.index.seq_list cimport prefetch, seqs_bytes, seqs_free
from penstock.store.index.subject_tally cimport (
    Pattern, add_pattern, count_in, decide, fits, free_nodes, free_pattern, free_tally, make_pattern,
    new_large_tally, new_tally, rule_out,
)
from penstock.subjects.trie_nodes cimport (
    LITERAL, Sub, any_match, descend, has_wildcard, hash_bytes, is_rest, is_star, new_node, prune,
    token_length, valid_pattern, xrealloc, xzalloc,
)

cdef enum:
    SLOTS_MIN = 16
    AT_ONCE = 32               # names looked up together: their cache misses overlap
    FETCH_AHEAD = 16           # subjects prefetched before use
    NAME_BYTES = 16            # bytes of a name that a comparison likely reads
    WALKS_MAX = 16             # patterns of one query that the trie resolves one by one
    FEW = 4096                 # up to so many subjects are visited instead of tallied
    EFFORT = 8                 # nodes a walk may visit for each subject it may find
    PLANT_SLICE = 16384        # subjects added to the trie at a time: some milliseconds


@cython.final
cdef class SubjectIndex:
    def __cinit__(self, *, uint64_t seed=0):
        self.seed = seed
        self.few = FEW
        self.plant_slice = PLANT_SLICE
        self.tallied = []

    def __dealloc__(self):
        cdef uint32_t i
        if self.root != NULL:
            free_nodes(self.root)
        for i in range(self.ntallies):
            free_tally(self.tallies[i])
        for i in range(self.ids):
            if self.by_id[i] != NULL:
                seqs_free(&self.by_id[i].seqs)
                free(self.by_id[i])
        free(self.by_id)
        free(self.free_ids)
        free(self.slots)
        free(self.found)

    def __len__(self) -> int:
        return self.count

    def memory(self) -> int:
        """Return the bytes held, without the subjects themselves and the nodes of the trie."""
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
        """Return the subject; create it if it is new."""
        return self.intern_hashed(text, n, <uint32_t>hash_bytes(text, n, self.seed))

    cdef Subject* intern_hashed(self, const char* text, size_t n, uint32_t hashed) noexcept nogil:
        cdef Subject* subject = self.find_hashed(text, n, hashed)
        if subject != NULL:
            return subject
        subject = <Subject*>xzalloc(sizeof(Subject) + n)
        subject.hash = hashed
        subject.length = <uint32_t>n
        subject.odd = not valid_pattern(text, n)
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
        self.enter(subject)
        return subject

    cdef void intern_all(self, Name* names, uint32_t n) noexcept nogil:
        """Look up or create the subjects of many names in batches. One by one, each name would
        have three cache misses in sequence."""
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
        """Remove a subject that has no messages."""
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
        if subject.node != NULL:
            subject.node.plain = NULL
            prune(subject.node)
        if self.nfree == self.free_cap:
            self.free_cap = 2 * self.free_cap + SLOTS_MIN
            self.free_ids = <uint32_t*>xrealloc(self.free_ids, self.free_cap * sizeof(uint32_t))
        self.free_ids[self.nfree] = subject.id
        self.nfree += 1
        self.by_id[subject.id] = NULL
        self.count -= 1
        seqs_free(&subject.seqs)
        free(subject)

    cdef SubjectIndex renewed(self):
        """Return an empty index with the same seed and settings."""
        cdef SubjectIndex index = SubjectIndex(seed=self.seed)
        index.few = self.few
        index.plant_slice = self.plant_slice
        return index

    cdef bint release_some(self, uint32_t at_most) noexcept nogil:
        """Remove up to `at_most` subjects, whatever they hold; return whether some are left."""
        while self.ids and at_most:
            self.ids -= 1
            if self.by_id[self.ids] != NULL:
                self.release(self.by_id[self.ids])
                at_most -= 1
        return self.ids > 0

    # -- patterns

    cdef void enter(self, Subject* subject) noexcept nogil:
        """Add a new subject to the trie, if its part is built, and to the tallies."""
        cdef uint32_t i
        if subject.id < self.planted:
            self.plant(subject)
        for i in range(self.ntallies):
            if subject.odd:
                rule_out(self.tallies[i], subject.id)
            else:
                decide(self.tallies[i], subject.id, subject_text(subject), subject.length)

    cdef void plant(self, Subject* subject) noexcept nogil:
        if subject.odd:
            return
        subject.node = descend(self.root, subject_text(subject), subject.length, self.seed, True)
        subject.node.plain = <Sub*>subject      # in this trie the member is a Subject, not a Sub

    cdef bint plant_some(self) noexcept nogil:
        """Add one slice of subjects to the trie; return whether the trie is complete."""
        cdef uint32_t stop = min(self.ids, self.planted + self.plant_slice)
        if self.root == NULL:
            self.root = new_node(NULL, LITERAL, b"", 0, 0)
        while self.planted < stop:
            if self.by_id[self.planted] != NULL:
                self.plant(self.by_id[self.planted])
            self.planted += 1
        return self.planted == self.ids

    cdef uint32_t matching(self, const char* pattern, size_t n) noexcept nogil:
        """Return how many subjects match a pattern; `matched` returns them until the next call."""
        cdef Subject* named
        self.nfound = 0
        if not valid_pattern(pattern, n):
            return 0
        if not has_wildcard(pattern, n):
            named = self.find(pattern, n)
            if named != NULL:
                self.add_found(named)
        elif not self.is_few(pattern, n):
            self.scan(pattern, n)
        return self.nfound

    cdef uint32_t matching_any(self, tuple filters):
        """Return how many subjects match any filter, () being all; `matched` returns them, each
        once, until the next call. One scan of the subjects serves any number of filters."""
        cdef Tally* wanted
        cdef Subject* subject
        cdef uint32_t i
        cdef bytes raw
        patterns = {text.encode("utf-8", "surrogateescape") for text in filters} or {b">"}
        if len(patterns) == 1:
            (raw,) = patterns
            return self.matching(raw, len(raw))
        ids = self.few_matching(patterns)
        self.nfound = 0
        if ids is not None:
            for i in ids:
                self.add_found(self.by_id[i])
            return self.nfound
        wanted = new_large_tally(self.seed)
        for raw in patterns:
            add_pattern(wanted, raw, len(raw))
        for i in range(self.ids):
            if i + FETCH_AHEAD < self.ids:
                prefetch_subject(self.by_id[i + FETCH_AHEAD])
            subject = self.by_id[i]
            if subject != NULL and not subject.odd and any_match(
                    wanted.root, subject_text(subject), subject_text(subject) + subject.length,
                    wanted.seed):
                self.add_found(subject)
        free_tally(wanted)
        return self.nfound

    cdef set few_matching(self, set patterns):
        """Return the numbers of the subjects that match any pattern; None if a scan costs less."""
        cdef uint32_t i, walks = 0
        cdef bytes raw
        cdef set ids = set()
        for raw in patterns:
            if has_wildcard(raw, len(raw)) and valid_pattern(raw, len(raw)):
                walks += 1
                if walks > WALKS_MAX or not self.is_few(raw, len(raw)):
                    return None
            else:
                self.matching(raw, len(raw))
            for i in range(self.nfound):
                ids.add(self.found[i].id)
        return ids

    cdef Subject* matched(self, uint32_t i) noexcept nogil:
        return self.found[i]

    cdef void add_found(self, Subject* subject) noexcept nogil:
        if self.nfound == self.found_cap:
            self.found_cap = 2 * self.found_cap + SLOTS_MIN
            self.found = <Subject**>xrealloc(self.found, self.found_cap * sizeof(Subject*))
        self.found[self.nfound] = subject
        self.nfound += 1

    cdef bint is_few(self, const char* pattern, size_t n) noexcept nogil:
        """Return whether the trie finds few subjects for a pattern within its budget; `found` then
        holds them. Returns False while the trie is incomplete by more than one slice."""
        if self.planted < self.ids and (
                self.ids - self.planted > self.plant_slice or not self.plant_some()):
            return False
        self.nfound = 0
        self.budget = EFFORT * self.few
        if self.root != NULL and self.walk(self.root, pattern, pattern + n):
            return True
        self.nfound = 0
        return self.root == NULL

    cdef void scan(self, const char* pattern, size_t n) noexcept nogil:
        """Find matches by visiting every subject in memory order, at a low cost for each.

        If the pattern matches few subjects, build another slice of the trie.
        """
        cdef Pattern compiled = make_pattern(pattern, n)
        cdef uint32_t i
        cdef Subject* subject
        for i in range(self.ids):
            if i + FETCH_AHEAD < self.ids:
                prefetch_subject(self.by_id[i + FETCH_AHEAD])
            subject = self.by_id[i]
            if subject != NULL and not subject.odd and fits(
                    &compiled, subject_text(subject), subject.length):
                self.add_found(subject)
        free_pattern(&compiled)
        if self.nfound <= self.few:
            self.plant_some()

    cdef bint walk(self, Node* level, const char* p, const char* end) noexcept nogil:
        """Find subjects below a node that match the tokens from `p` on; False: over budget."""
        cdef size_t n = token_length(p, end)
        cdef uint32_t i
        cdef Node* node
        if is_rest(p, n):
            return self.walk_below(level)
        if not is_star(p, n):
            node = descend(level, p, n, self.seed, False)
            return node == NULL or self.go_on(node, p + n, end)
        for i in range(level.nslots):
            if level.slots[i] != NULL and not self.go_on(level.slots[i], p + n, end):
                return False
        # Stored subjects may contain wildcard characters as literal tokens.
        if level.star != NULL and not self.go_on(level.star, p + n, end):
            return False
        return level.rest == NULL or self.go_on(level.rest, p + n, end)

    cdef bint go_on(self, Node* node, const char* p, const char* end) noexcept nogil:
        if p == end:
            return self.take(node)
        if self.budget == 0:
            return False
        self.budget -= 1
        return self.walk(node, p + 1, end)

    cdef bint walk_below(self, Node* level) noexcept nogil:
        cdef uint32_t i
        for i in range(level.nslots):
            if level.slots[i] != NULL and not (
                    self.take(level.slots[i]) and self.walk_below(level.slots[i])):
                return False
        if level.star != NULL and not (self.take(level.star) and self.walk_below(level.star)):
            return False
        return level.rest == NULL or self.take(level.rest)

    cdef bint take(self, Node* node) noexcept nogil:
        if self.budget == 0 or self.nfound > self.few:
            return False
        self.budget -= 1
        if node.plain != NULL:
            self.add_found(<Subject*>node.plain)
        return True

    # -- tallies

    cdef Tally* tally(self, list patterns):
        """Return the tally of these patterns: the subjects that match any, and their messages.

        Returns NULL if each matches so few that `matching` costs less. Valid until the next call.
        """
        cdef bytes key = b"\n".join(patterns), raw
        cdef Tally* tally
        cdef uint32_t i
        cdef bint few = True
        if key in self.tallied:
            return self.used(self.tallied.index(key))
        for raw in patterns:
            few = few and (not has_wildcard(raw, len(raw)) or self.is_few(raw, len(raw)))
        if few:
            return NULL
        tally = new_tally(<uint32_t>len(patterns))
        for i, raw in enumerate(patterns):
            tally.patterns[i] = make_pattern(raw, len(raw))
        if count_all(self, tally) <= self.few:
            self.plant_some()
        return self.keep(tally, key)

    cdef Tally* tally_many(self, tuple filters):
        """Return the tally of many patterns: never NULL; cached by the identity of the tuple."""
        cdef Tally* tally
        cdef Subject* subject
        cdef bytes raw
        cdef uint32_t i
        cdef bint is_wild = False
        for i in range(self.ntallies, 0, -1):
            if self.tallied[i - 1] is filters:
                return self.used(i - 1)
        tally = new_large_tally(self.seed)
        raws = [text.encode("utf-8", "surrogateescape") for text in filters]
        for raw in raws:
            is_wild = is_wild or has_wildcard(raw, len(raw))
            add_pattern(tally, raw, len(raw))
        if is_wild:
            count_all(self, tally)
        elif self.ids:
            rule_out(tally, self.ids - 1)              # makes space for all subjects
            for raw in raws:
                subject = self.find(raw, len(raw))
                if subject != NULL and not subject.odd and not is_counted(tally, subject.id):
                    count_in(tally, subject.id)
                    tally.msgs += subject.seqs.count
        return self.keep(tally, filters)

    cdef Tally* used(self, uint32_t i):
        """Return the tally at this index and move it to the end, as the most recently used."""
        cdef Tally* tally = self.tallies[i]
        if i + 1 == self.ntallies:
            return tally
        memmove(self.tallies + i, self.tallies + i + 1, (self.ntallies - i - 1) * sizeof(Tally*))
        self.tallies[self.ntallies - 1] = tally
        self.tallied.append(self.tallied.pop(i))
        return tally

    cdef Tally* keep(self, Tally* tally, object key):
        """Add a tally that the index keeps up to date; if full, drop the least recently used."""
        if self.ntallies == TALLIES_MAX:
            free_tally(self.tallies[0])
            self.ntallies -= 1
            memmove(self.tallies, self.tallies + 1, self.ntallies * sizeof(Tally*))
            self.tallied.pop(0)
        self.tallies[self.ntallies] = tally
        self.ntallies += 1
        self.tallied.append(key)
        return tally

    cdef void forget_tallies(self):
        while self.ntallies:
            self.ntallies -= 1
            free_tally(self.tallies[self.ntallies])
        self.tallied.clear()


cdef inline void prefetch_subject(Subject* subject) noexcept nogil:
    """Prefetch the name of a subject and its flags."""
    if subject != NULL:
        prefetch(&subject.length)
        prefetch(subject_text(subject) + NAME_BYTES)

cdef uint32_t count_all(SubjectIndex index, Tally* tally) noexcept nogil:
    """Fill a new tally; return how many subjects it has."""
    cdef uint32_t i, subjects = 0
    cdef Subject* subject
    for i in range(index.ids):
        if i + FETCH_AHEAD < index.ids:
            prefetch_subject(index.by_id[i + FETCH_AHEAD])
        subject = index.by_id[i]
        if subject == NULL or subject.odd:
            rule_out(tally, i)
        elif decide(tally, i, subject_text(subject), subject.length):
            tally.msgs += subject.seqs.count
            subjects += 1
    return subjects
