"""The message log: a record log with the queries of a stream.

Every query uses the entries and the sequence lists of subjects: none reads stored messages to find
others, however many there are.
"""

from cpython cimport array
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t
from libc.stdlib cimport free, qsort

from penstock.store.index.block_list cimport Block, Entry
from penstock.store.index.record_log cimport as_raw, as_text
from penstock.store.index.seq_list cimport (
    SeqList, prefetch, seqs_at_least, seqs_at_most, seqs_count_from, seqs_expect, seqs_first,
    seqs_last,
)
from penstock.store.index.subject_index cimport Subject, subject_text
from penstock.store.index.subject_tally cimport (
    Pattern, Tally, fits, free_pattern, is_counted, make_pattern,
)
from penstock.subjects.trie_nodes cimport has_wildcard, xzalloc

import array

from penstock.store.index.record_log import (  # noqa: F401 - the names of this module
    Cold, DamagedRecord, MessageRecord,
)


cdef enum:
    NEIGHBOURS_MAX = 16        # messages tested before the index, which may visit every match
    SPAN_MAX = 256             # messages tested one by one instead of using the index
    FETCH_AHEAD = 16           # subjects prefetched before use
    WORDS_PER_SEQ = 8          # above so many 64-bit words per sequence, sort by comparison

cdef inline uint64_t count_between(SeqList* seqs, uint64_t start, uint64_t last) noexcept nogil:
    """Return how many sequences lie between `start` and `last`, both inclusive."""
    cdef uint64_t count = seqs_count_from(seqs, start)
    if count and seqs_last(seqs) > last:
        count -= seqs_count_from(seqs, max(start, last + 1))
    return count


cdef extern from *:
    """
    static inline int penstock_lowest_bit(uint64_t word) { return __builtin_ctzll(word); }
    """
    int lowest_bit "penstock_lowest_bit"(uint64_t word) noexcept nogil


cdef int by_number(const void* left, const void* right) noexcept nogil:
    cdef uint64_t a = (<const uint64_t*>left)[0], b = (<const uint64_t*>right)[0]
    return (a > b) - (a < b)


cdef size_t put_in_order(uint64_t* seqs, size_t n, uint64_t first, uint64_t last) noexcept nogil:
    """Sort sequences, drop duplicates and those outside `first` to `last`; return the count."""
    cdef size_t i, kept = 0, words = (last - first) // 64 + 1
    cdef uint64_t* marks
    cdef uint64_t word
    if words > WORDS_PER_SEQ * n:
        qsort(seqs, n, sizeof(uint64_t), by_number)
        for i in range(n):
            if first <= seqs[i] <= last and (kept == 0 or seqs[kept - 1] != seqs[i]):
                seqs[kept] = seqs[i]
                kept += 1
        return kept
    # Dense: a bitmap read in order costs a fraction of comparing.
    marks = <uint64_t*>xzalloc(words * sizeof(uint64_t))
    for i in range(n):
        if first <= seqs[i] <= last:
            marks[(seqs[i] - first) >> 6] |= <uint64_t>1 << ((seqs[i] - first) & 63)
    for i in range(words):
        word = marks[i]
        while word:
            seqs[kept] = first + 64 * i + <uint64_t>lowest_bit(word)
            kept += 1
            word &= word - 1
    free(marks)
    return kept


cdef size_t put_run(array.array found, size_t n, size_t at_most, uint64_t first, uint64_t stop):
    """Append sequences from `first` to before `stop`, up to `at_most` in all; return the count."""
    cdef size_t count, i
    if stop <= first or n >= at_most:
        return n
    count = <size_t>min(stop - first, <uint64_t>(at_most - n))
    array.resize_smart(found, n + count)
    for i in range(count):
        found.data.as_ulonglongs[n + i] = first + i
    return n + count


cdef class MessageLog(RecordLog):
    def last_of(self, str subject not None) -> int:
        """Return the last sequence of a subject; 0 if it has none."""
        cdef bytes raw = as_raw(subject)
        cdef Subject* found = self.subjects.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        return 0 if found == NULL else seqs_last(&found.seqs)

    def subject_state(self, str subject not None):
        """Return (first, last, messages) of a subject, or None."""
        cdef bytes raw = as_raw(subject)
        cdef Subject* found = self.subjects.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        if found == NULL:
            return None
        return seqs_first(&found.seqs), seqs_last(&found.seqs), found.seqs.count

    def subject_states(self, str pattern not None) -> dict:
        """Return (first, last, messages) of every subject that matches the pattern."""
        cdef bytes raw = as_raw(pattern)
        cdef Subject* subject
        cdef uint32_t i
        states = {}
        for i in range(self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))):
            subject = self.subjects.matched(i)
            states[as_text(subject_text(subject), subject.length)] = (
                seqs_first(&subject.seqs), seqs_last(&subject.seqs), subject.seqs.count)
        return states

    def last_of_each(self, tuple filters not None, uint64_t at_or_before):
        """Return the newest sequence, up to `at_or_before`, of each subject that matches any
        filter, ascending."""
        cdef array.array lasts = array.array("Q")
        cdef uint64_t seq
        cdef uint32_t i, n = self.subjects.matching_any(filters)
        cdef size_t count = 0
        array.resize(lasts, n)
        for i in range(n):
            if i + FETCH_AHEAD < n:
                prefetch(self.subjects.matched(i + FETCH_AHEAD))
                seqs_expect(&self.subjects.matched(i + FETCH_AHEAD // 2).seqs)
            seq = seqs_at_most(&self.subjects.matched(i).seqs, at_or_before)
            if seq:
                lasts.data.as_ulonglongs[count] = seq
                count += 1
        array.resize(lasts, put_in_order(<uint64_t*>lasts.data.as_ulonglongs, count,
                                         self.first_seq, max(self.first_seq, self.last_seq)))
        return lasts

    def next_seq(self, tuple filters not None, uint64_t start) -> int:
        """Return the first sequence from `start` on that matches any filter; 0: none. () is all."""
        return self.find_next(filters, start)

    cdef uint64_t find_next(self, tuple filters, uint64_t start):
        cdef uint64_t best = 0, seq = start
        cdef bytes raw
        cdef uint32_t i
        cdef Tally* tally
        if len(filters) > FILTERS_FEW_MAX:
            return self.tallied_from(self.subjects.tally_many(filters), start)
        if not filters or ">" in filters:
            return self.live_from(start)
        patterns = [as_raw(text) for text in filters]
        for i in range(NEIGHBOURS_MAX):
            seq = self.live_from(seq)
            if seq == 0 or self.is_wanted(seq, patterns):
                return seq
            seq += 1
        tally = self.tally_of(patterns)
        if tally != NULL:
            return self.tallied_from(tally, seq)
        for raw in patterns:
            for i in range(self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))):
                seq = seqs_at_least(&self.subjects.matched(i).seqs, start)
                best = seq if seq and (best == 0 or seq < best) else best
        return best

    cdef bint is_wanted(self, uint64_t seq, list patterns):
        cdef Block* block = NULL
        cdef Subject* subject = self.subjects.by_id[self.entry_at(seq, &block).subject]
        cdef Pattern pattern
        cdef bytes raw
        cdef bint wanted = False
        if subject.odd:
            return False
        for raw in patterns:
            pattern = make_pattern(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            wanted = wanted or fits(&pattern, subject_text(subject), subject.length)
            free_pattern(&pattern)
        return wanted

    cdef Tally* tally_of(self, list patterns):
        """Return a tally for patterns with wildcards; NULL if visiting subjects costs less."""
        cdef bytes raw
        for raw in patterns:
            if has_wildcard(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)):
                return self.subjects.tally(patterns)
        return NULL

    def num_pending(self, uint64_t start, tuple filters not None, *, uint64_t last,
                    bint last_per_subject=False) -> int:
        """Return how many messages from `start` to `last` match any filter.

        With `last_per_subject`: how many subjects have their last message up to `last` there.
        """
        cdef uint64_t total = 0
        cdef uint32_t i
        cdef Subject* subject
        cdef Tally* tally = NULL
        cdef bint whole
        if start > last or start > self.last_seq:
            return 0
        if len(filters) > FILTERS_FEW_MAX and not last_per_subject:
            return self.tallied_between(self.subjects.tally_many(filters), start, last)
        if (not filters or ">" in filters) and not last_per_subject:
            return self.count_from(start) - (self.count_from(last + 1) if last < self.last_seq else 0)
        if not last_per_subject:
            patterns = [as_raw(text) for text in filters]
            if min(last, self.last_seq) - start < SPAN_MAX:
                return self.wanted_between(start, last, patterns)
            tally = self.tally_of(patterns)
        if tally != NULL:
            return self.tallied_between(tally, start, last)
        whole = start <= self.first_seq and self.last_seq <= last
        for i in range(self.subjects.matching_any(filters)):
            subject = self.subjects.matched(i)
            if last_per_subject and whole:
                total += 1
            elif last_per_subject:
                total += seqs_at_most(&subject.seqs, last) >= max(start, <uint64_t>1)
            else:
                total += count_between(&subject.seqs, start, last)
        return total

    def wanted_between(self, uint64_t start, uint64_t last, list patterns) -> int:
        """Return the same count, message by message: cheaper for short spans."""
        cdef uint64_t total = 0, seq = self.live_from(start)
        while seq and seq <= last:
            total += self.is_wanted(seq, patterns)
            seq = self.live_from(seq + 1)
        return total

    # -- by tally: one bit test per entry, over the shorter of the counted span and its complement

    cdef uint64_t tallied_between(self, Tally* tally, uint64_t start, uint64_t last) noexcept nogil:
        if last > self.last_seq:
            last = self.last_seq
        if start > self.first_seq and start - self.first_seq > last - start:
            return self.count_tallied(tally, start, last)
        return (tally.msgs - (self.count_tallied(tally, self.first_seq, start - 1)
                              if start > self.first_seq else 0)
                - self.count_tallied(tally, last + 1, self.last_seq))

    cdef uint64_t count_tallied(self, Tally* tally, uint64_t first, uint64_t last) noexcept nogil:
        cdef uint64_t total = 0
        cdef uint32_t i = self.index_at(first), at, stop
        cdef Block* block
        for i in range(i - 1 if i > self.block_first else i, self.block_last):
            block = self.blocks[i]
            if block.first_seq > last:
                break
            at = <uint32_t>(first - block.first_seq) if first > block.first_seq else 0
            stop = <uint32_t>min(<uint64_t>block.nentries, last + 1 - block.first_seq)
            while at < stop:
                total += (block.entries[at].offset != 0
                          and is_counted(tally, block.entries[at].subject))
                at += 1
        return total

    cdef uint64_t tallied_from(self, Tally* tally, uint64_t start) noexcept nogil:
        """Return the first tallied sequence from `start` on; 0 if there is none."""
        cdef uint32_t i = self.index_at(start)
        cdef uint64_t at
        cdef Block* block
        if tally.msgs == 0:
            return 0
        for i in range(i - 1 if i > self.block_first else i, self.block_last):
            block = self.blocks[i]
            at = start - block.first_seq if start > block.first_seq else 0
            while at < block.nentries and block.live:
                if block.entries[at].offset and is_counted(tally, block.entries[at].subject):
                    return block.first_seq + at
                at += 1
        return 0

    cdef uint64_t tallied_before(self, Tally* tally, uint64_t seq) noexcept nogil:
        """Return the last tallied sequence up to `seq`; 0 if there is none."""
        cdef uint32_t i
        cdef uint64_t at
        cdef Block* block
        if tally.msgs == 0:
            return 0
        for i in range(self.index_at(seq), self.block_first, -1):
            block = self.blocks[i - 1]
            at = min(seq - block.first_seq + 1, <uint64_t>block.nentries) if block.live else 0
            while at > 0:
                at -= 1
                if block.entries[at].offset and is_counted(tally, block.entries[at].subject):
                    return block.first_seq + at
        return 0

    def count_from(self, uint64_t start) -> int:
        """Return the number of live messages at or after `start`."""
        cdef uint64_t total = 0, at
        cdef uint32_t i
        cdef Block* block
        if start <= self.first_seq:
            return self.msgs
        for i in range(self.block_last, self.block_first, -1):
            block = self.blocks[i - 1]
            if block.first_seq >= start:
                total += block.live
                continue
            for at in range(start - block.first_seq, block.nentries):
                total += block.entries[at].offset != 0
            break
        return total

    def seq_at_time(self, int64_t ts_ns) -> int:
        """Return the first live sequence with a timestamp at or after `ts_ns`; 0 if none."""
        cdef uint32_t i
        cdef uint64_t at
        cdef Block* block
        for i in range(self.block_first, self.block_last):
            block = self.blocks[i]
            if i + 1 < self.block_last and self.blocks[i + 1].nentries and (
                    self.blocks[i + 1].entries[0].offset and self.blocks[i + 1].entries[0].ts < ts_ns):
                continue
            for at in range(block.nentries):
                if block.entries[at].offset and block.entries[at].ts >= ts_ns:
                    return block.first_seq + at
        return 0

    def deleted_ranges(self) -> list:
        """Return (first, last) of every run without live messages from first to last sequence."""
        cdef uint64_t expected = self.first_seq, seq
        if self.msgs == 0:
            return []
        ranges = []
        seq = self.first_seq
        while seq:
            if seq > expected:
                ranges.append((expected, seq - 1))
            expected = seq + 1
            seq = self.live_from(expected)
        if expected <= self.last_seq:
            ranges.append((expected, self.last_seq))
        return ranges

    def deleted_seqs(self, size_t at_most):
        """Return the first sequences after the first message that hold none, as an array."""
        cdef array.array found = array.array("Q")
        cdef uint64_t expected = self.first_seq, at
        cdef uint32_t i
        cdef size_t n = 0
        cdef Block* block
        for i in range(self.block_first, self.block_last if self.msgs else self.block_first):
            block = self.blocks[i]
            at = expected - block.first_seq if expected > block.first_seq else 0
            while at < block.nentries and n < at_most:
                if block.entries[at].offset:
                    n = put_run(found, n, at_most, expected, block.first_seq + at)
                    expected = block.first_seq + at + 1
                at += 1
        if self.msgs:
            n = put_run(found, n, at_most, expected, self.last_seq + 1)
        array.resize(found, n)
        return found

    def subject_of(self, uint64_t seq):
        """Return the subject of a message, warm or cold; None if there is no message."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        cdef Subject* subject
        if entry == NULL:
            return None
        subject = self.subjects.by_id[entry.subject]
        return as_text(subject_text(subject), subject.length)

    def first_since(self, tuple filters not None, uint64_t start) -> int:
        """Return the lowest sequence from `start` on that is the first of a subject that matches
        any filter; 0 if there is none."""
        cdef uint64_t best = 0, seq
        cdef uint32_t i
        for i in range(self.subjects.matching_any(filters) if filters else 0):
            seq = seqs_first(&self.subjects.matched(i).seqs)
            if seq >= start and (best == 0 or seq < best):
                best = seq
        return best

    def last_match(self, str pattern not None, uint64_t before_or_at) -> int:
        """Return the newest sequence up to `before_or_at` that matches the pattern; 0: none."""
        cdef bytes raw = as_raw(pattern)
        cdef uint64_t best = 0
        cdef uint32_t i
        cdef Tally* tally
        if pattern == ">":
            return self.live_before(before_or_at)
        tally = self.tally_of([raw])
        if tally != NULL:
            return self.tallied_before(tally, before_or_at)
        for i in range(self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))):
            best = max(best, seqs_at_most(&self.subjects.matched(i).seqs, before_or_at))
        return best
