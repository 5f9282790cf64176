"""The message log: a record log with the questions a stream asks of it.

Every answer is a look-up in the entries and the subject lists: nothing here reads messages to
find others, however many there are.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t

from penstock.store.recordlog cimport Block
from penstock.store.seqlist cimport (
    SeqList, seqs_at_least, seqs_at_most, seqs_count_from, seqs_first, seqs_last,
)
from penstock.store.subjectindex cimport Subject, subject_text
from penstock.subjects.nodes cimport has_wildcard

from penstock.store.recordlog import (  # noqa: F401 - the names of this module
    BLOCK_MAGIC, Cold, DamagedRecord, MessageRecord, block_header,
)


cdef inline str as_text(const char* p, size_t n):
    return p[:n].decode("utf-8", "surrogateescape")

cdef inline bytes as_raw(str text):
    return text.encode("utf-8", "surrogateescape")

cdef inline uint64_t count_between(SeqList* seqs, uint64_t start, uint64_t last) noexcept nogil:
    """How many are from `start` on and not behind `last`."""
    cdef uint64_t count = seqs_count_from(seqs, start)
    if count and seqs_last(seqs) > last:
        count -= seqs_count_from(seqs, max(start, last + 1))
    return count


cdef class MessageLog(RecordLog):
    def last_of(self, str subject not None) -> int:
        """The last sequence of a subject; 0 if it has none."""
        cdef bytes raw = as_raw(subject)
        cdef Subject* found = self.subjects.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        return 0 if found == NULL else seqs_last(&found.seqs)

    def subject_state(self, str subject not None):
        """(first, last, messages) of a subject, or None."""
        cdef bytes raw = as_raw(subject)
        cdef Subject* found = self.subjects.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        if found == NULL:
            return None
        return seqs_first(&found.seqs), seqs_last(&found.seqs), found.seqs.count

    def subject_states(self, str pattern not None) -> dict:
        """(first, last, messages) of every subject the pattern matches."""
        cdef bytes raw = as_raw(pattern)
        cdef Subject* subject
        cdef uint32_t i
        states = {}
        for i in range(self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))):
            subject = self.subjects.matched(i)
            states[as_text(subject_text(subject), subject.length)] = (
                seqs_first(&subject.seqs), seqs_last(&subject.seqs), subject.seqs.count)
        return states

    def next_seq(self, tuple filters not None, uint64_t start) -> int:
        """The first sequence from `start` on that some filter matches; 0: none. () is all."""
        return self.find_next(filters, start)

    cdef uint64_t find_next(self, tuple filters, uint64_t start):
        cdef uint64_t best = 0, seq
        cdef bytes raw
        cdef Subject* subject
        cdef uint32_t i, n
        if not filters or ">" in filters:
            return self.live_from(start)
        for text in filters:
            raw = as_raw(text)
            if not has_wildcard(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)):
                subject = self.subjects.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
                if subject != NULL:
                    seq = seqs_at_least(&subject.seqs, start)
                    best = seq if seq and (best == 0 or seq < best) else best
                continue
            n = self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            for i in range(n):
                seq = seqs_at_least(&self.subjects.matched(i).seqs, start)
                best = seq if seq and (best == 0 or seq < best) else best
        return best

    def num_pending(self, uint64_t start, tuple filters not None, *, uint64_t last,
                    bint last_per_subject=False) -> int:
        """How many messages from `start` to `last` some filter matches.

        With `last_per_subject`: how many subjects have their last message up to `last` there.
        """
        cdef uint64_t total = 0
        cdef bytes raw
        cdef uint32_t i
        cdef Subject* subject
        if start > last:
            return 0
        if (not filters or ">" in filters) and not last_per_subject:
            return self.count_from(start) - (self.count_from(last + 1) if last < self.last_seq else 0)
        counted = set()
        for text in filters or (">",):
            raw = as_raw(text)
            for i in range(self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))):
                subject = self.subjects.matched(i)
                if len(filters) > 1:
                    if subject.id in counted:
                        continue
                    counted.add(subject.id)
                if last_per_subject:
                    total += seqs_at_most(&subject.seqs, last) >= max(start, <uint64_t>1)
                else:
                    total += count_between(&subject.seqs, start, last)
        return total

    def count_from(self, uint64_t start) -> int:
        """Live messages at or after `start`."""
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
        """The first live sequence whose message is not older than `ts_ns`; 0 if there is none."""
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
        """(first, last) of every run of sequences between first and last that is not live."""
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

    def last_match(self, str pattern not None, uint64_t before_or_at) -> int:
        """The newest sequence, up to one, whose subject the pattern matches; 0: none."""
        cdef bytes raw = as_raw(pattern)
        cdef uint64_t best = 0
        cdef uint32_t i
        cdef Subject* subject
        if pattern == ">":
            return self.live_before(before_or_at)
        if not has_wildcard(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)):
            subject = self.subjects.find(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            return 0 if subject == NULL else seqs_at_most(&subject.seqs, before_or_at)
        for i in range(self.subjects.matching(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))):
            best = max(best, seqs_at_most(&self.subjects.matched(i).seqs, before_or_at))
        return best
