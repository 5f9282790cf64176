"""A sorted table of subjects with their message counts, built in slices from a log.

`collect` copies matching subjects out of the index, a bounded number at a time, and sorts each
slice; `page` merges the sorted slices from the front, also a bounded number at a time. So no step
takes longer if there are more subjects. A count is taken when its slice is collected; a subject
added between two slices may or may not be in the table. The table keeps no reference to the log,
which may change between two calls.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport uint32_t, uint64_t
from libc.stdlib cimport free, qsort
from libc.string cimport memcmp, memcpy

from penstock.store.index.message_log cimport MessageLog
from penstock.store.index.record_log cimport as_raw, as_text
from penstock.store.index.seq_list cimport prefetch
from penstock.store.index.subject_index cimport Subject, SubjectIndex, subject_text
from penstock.store.index.subject_tally cimport Pattern, fits, free_pattern, make_pattern
from penstock.subjects.trie_nodes cimport has_wildcard, valid_pattern, xalloc, xrealloc

cdef enum:
    FETCH_AHEAD = 16           # subjects prefetched before use


cdef struct Row:
    uint64_t msgs
    uint32_t length
    # the subject's bytes follow, padded so that the next row is aligned

cdef inline char* row_text(Row* row) noexcept nogil:
    return <char*>(row + 1)

cdef inline size_t row_bytes(uint32_t length) noexcept nogil:
    return (sizeof(Row) + length + 7) & ~<size_t>7

cdef inline int compare(Row* one, Row* other) noexcept nogil:
    cdef int order = memcmp(row_text(one), row_text(other), min(one.length, other.length))
    return order if order else (one.length > other.length) - (one.length < other.length)

cdef int by_subject(const void* one, const void* other) noexcept nogil:
    return compare((<Row**>one)[0], (<Row**>other)[0])


cdef struct Run:
    char* memory
    Row** rows              # ascending
    uint32_t n
    uint32_t at             # index of the next row to return


cdef class SubjectTable:
    """The subjects of one pattern."""

    cdef bytes pattern
    cdef uint32_t next_id
    cdef bint is_whole
    cdef Run* runs
    cdef uint32_t nruns
    cdef uint32_t runs_cap
    cdef uint32_t* heap         # runs with rows left, the one with the lowest subject first
    cdef uint32_t nheap
    cdef readonly int total

    def __init__(self, str pattern not None):
        self.pattern = as_raw(pattern)
        self.is_whole = not valid_pattern(PyBytes_AS_STRING(self.pattern),
                                          PyBytes_GET_SIZE(self.pattern))

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.nruns):
            free(self.runs[i].memory)
            free(self.runs[i].rows)
        free(self.runs)
        free(self.heap)

    # -- collecting

    def collect(self, MessageLog log not None, uint32_t at_most) -> bool:
        """Examine up to `at_most` more subjects; return whether some are left."""
        cdef SubjectIndex index = log.subjects
        cdef const char* text = PyBytes_AS_STRING(self.pattern)
        cdef size_t n = PyBytes_GET_SIZE(self.pattern)
        cdef Subject* subject
        cdef Subject** found
        cdef uint32_t count = 0
        if self.is_whole:
            return False
        if self.next_id == 0 and not has_wildcard(text, n):
            subject = index.find(text, n)
            if subject != NULL:
                self.add_run(&subject, 1)
            self.is_whole = True
            return False
        found = <Subject**>xalloc((at_most + 1) * sizeof(Subject*))
        if self.next_id == 0 and index.is_few(text, n) and index.nfound <= at_most:
            count = index.nfound
            if count:  # the list is NULL if the index never found anything
                memcpy(found, index.found, count * sizeof(Subject*))
            self.is_whole = True
        else:
            count = self.scan(index, at_most, found)
        self.add_run(found, count)
        free(found)
        return not self.is_whole

    cdef uint32_t scan(self, SubjectIndex index, uint32_t at_most, Subject** found) noexcept:
        """Find matches among the next subjects in memory."""
        cdef Pattern compiled = make_pattern(PyBytes_AS_STRING(self.pattern),
                                             PyBytes_GET_SIZE(self.pattern))
        cdef uint32_t count = 0, i, stop
        cdef Subject* subject
        stop = max(index.ids, self.next_id)      # a purge may have replaced the index
        stop = min(stop, self.next_id + at_most)
        for i in range(self.next_id, stop):
            if i + FETCH_AHEAD < stop and index.by_id[i + FETCH_AHEAD] != NULL:
                prefetch(index.by_id[i + FETCH_AHEAD])
                prefetch(subject_text(index.by_id[i + FETCH_AHEAD]))
            subject = index.by_id[i]
            if subject != NULL and not subject.odd and fits(
                    &compiled, subject_text(subject), subject.length):
                found[count] = subject
                count += 1
        free_pattern(&compiled)
        self.next_id = stop
        self.is_whole = stop >= index.ids
        return count

    cdef void add_run(self, Subject** found, uint32_t n) noexcept:
        """Copy subjects and sort them."""
        cdef size_t size = 0
        cdef uint32_t i
        cdef Run* run
        cdef Row* row
        cdef char* at
        if n == 0:
            return
        if self.nruns == self.runs_cap:
            self.runs_cap = 2 * self.runs_cap + 8
            self.runs = <Run*>xrealloc(self.runs, self.runs_cap * sizeof(Run))
        run = self.runs + self.nruns
        self.nruns += 1
        for i in range(n):
            size += row_bytes(found[i].length)
        at = run.memory = <char*>xalloc(size)
        run.rows = <Row**>xalloc(n * sizeof(Row*))
        run.n = n
        run.at = 0
        for i in range(n):
            row = run.rows[i] = <Row*>at
            row.msgs = found[i].seqs.count
            row.length = found[i].length
            memcpy(row_text(row), subject_text(found[i]), row.length)
            at += row_bytes(row.length)
        qsort(run.rows, n, sizeof(Row*), by_subject)
        self.total += n

    # -- paging, after everything is collected

    cdef Row* head(self, uint32_t i) noexcept nogil:
        return self.runs[self.heap[i]].rows[self.runs[self.heap[i]].at]

    cdef void sift(self, uint32_t i) noexcept nogil:
        """Move the run at this heap position to its place."""
        cdef uint32_t least, child, other
        while True:
            least, child = i, 2 * i + 1
            if child < self.nheap and compare(self.head(child), self.head(least)) < 0:
                least = child
            child += 1
            if child < self.nheap and compare(self.head(child), self.head(least)) < 0:
                least = child
            if least == i:
                return
            other = self.heap[i]
            self.heap[i] = self.heap[least]
            self.heap[least] = other
            i = least

    cdef void begin(self) noexcept nogil:
        cdef uint32_t i
        if self.heap != NULL:
            return
        self.heap = <uint32_t*>xalloc((self.nruns + 1) * sizeof(uint32_t))
        self.nheap = self.nruns
        for i in range(self.nruns):
            self.heap[i] = i
        for i in range(self.nruns // 2 + 1, 0, -1):
            if i - 1 < self.nheap:
                self.sift(i - 1)

    cdef Row* following(self) noexcept nogil:
        """Return the next subject in order; NULL after the last."""
        cdef Row* row
        cdef Run* run
        if self.nheap == 0:
            return NULL
        row = self.head(0)
        run = self.runs + self.heap[0]
        run.at += 1
        if run.at == run.n:
            self.nheap -= 1
            self.heap[0] = self.heap[self.nheap]
        self.sift(0)
        return row

    def skip(self, uint64_t n) -> int:
        """Skip up to `n` subjects in order; return how many there were."""
        cdef uint64_t done = 0
        with nogil:
            self.begin()
            while done < n and self.following() != NULL:
                done += 1
        return done

    def page(self, uint32_t at_most) -> dict:
        """Return the next subjects in order with their counts."""
        cdef Row* row
        cdef uint32_t i
        rows = {}
        self.begin()
        for i in range(at_most):
            row = self.following()
            if row == NULL:
                break
            rows[as_text(row_text(row), row.length)] = row.msgs
        return rows
