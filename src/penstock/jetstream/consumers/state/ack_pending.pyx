"""The ack-pending messages of a consumer, by stream sequence.

A sorted array: deliveries come in ascending order and are acknowledged in about the same order. A
lookup first tries the position an entry has if no sequence is missing, then uses binary search. A
removed entry stays as a gap until the front passes it, or until gaps outnumber the rest. Reads as a
mapping from the stream sequence to (consumer sequence of the first delivery, time of the last).

It is a pure data structure: `consumer_deltas` gives the entries their meaning.
"""

from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memmove

from penstock.subjects.trie_nodes cimport xrealloc

from collections.abc import Mapping

cdef enum:
    GAPS_MAX = 64          # kept in addition to one per entry

cdef struct Delivered:
    uint64_t seq
    uint64_t consumer_seq
    int64_t ts
    bint removed


cdef class AckPending:
    cdef Delivered* rows
    cdef size_t first      # rows[first : end] are in use; rows[first] is not removed
    cdef size_t end
    cdef size_t cap
    cdef size_t count

    def __dealloc__(self):
        free(self.rows)

    # -- positions

    cdef size_t place(self, uint64_t seq) noexcept nogil:
        """Return the index of a sequence, or where it would be inserted."""
        cdef size_t low = self.first, high = self.end, middle
        cdef uint64_t ahead
        if low == high or seq <= self.rows[low].seq:
            return low
        if seq > self.rows[high - 1].seq:
            return high
        ahead = seq - self.rows[low].seq
        if ahead < high - low:
            if self.rows[low + ahead].seq == seq:
                return low + ahead
            high = low + ahead             # sequences rise by at least one
        while low < high:
            middle = (low + high) >> 1
            if self.rows[middle].seq < seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Delivered* find(self, uint64_t seq) noexcept nogil:
        cdef size_t at = self.place(seq)
        if at == self.end or self.rows[at].seq != seq or self.rows[at].removed:
            return NULL
        return self.rows + at

    cdef void add(self, uint64_t seq, uint64_t consumer_seq, int64_t ts) noexcept nogil:
        cdef size_t at = self.place(seq)
        cdef Delivered* row
        if at == self.end or self.rows[at].seq != seq:
            at = self.open(at)
            self.rows[at].removed = True
        row = self.rows + at
        if row.removed:
            row.seq = seq
            row.consumer_seq = consumer_seq    # the consumer sequence of the first delivery stays
            row.removed = False
            self.count += 1
        row.ts = ts

    cdef size_t open(self, size_t at) noexcept nogil:
        """Make room for a row at an index; return the index, which may have moved."""
        if self.end == self.cap:
            if self.first > self.end // 2:
                memmove(self.rows, self.rows + self.first,
                        (self.end - self.first) * sizeof(Delivered))
                at -= self.first
                self.end -= self.first
                self.first = 0
            else:
                self.cap = 2 * self.cap + 16
                self.rows = <Delivered*>xrealloc(self.rows, self.cap * sizeof(Delivered))
        memmove(self.rows + at + 1, self.rows + at, (self.end - at) * sizeof(Delivered))
        self.end += 1
        return at

    cdef void take(self, Delivered* row) noexcept nogil:
        row.removed = True
        self.count -= 1
        if self.count == 0:
            self.first = self.end = 0
            return
        while self.rows[self.first].removed:
            self.first += 1
        if self.end - self.first > 2 * self.count + GAPS_MAX:
            self.close_gaps()

    cdef void close_gaps(self) noexcept nogil:
        cdef size_t i, n = 0
        for i in range(self.first, self.end):
            if not self.rows[i].removed:
                self.rows[n] = self.rows[i]
                n += 1
        self.first = 0
        self.end = n

    # -- changes

    def put(self, uint64_t seq, uint64_t consumer_seq, int64_t ts_ns) -> None:
        """Record a delivery; an existing entry only gets the new time."""
        self.add(seq, consumer_seq, ts_ns)

    def put_run(self, uint64_t consumer_seq, list spans not None, int64_t ts_ns) -> None:
        """Record consecutive deliveries of the sequences in these spans."""
        cdef uint64_t seq, first, last
        for first, last in spans:
            for seq in range(first, last + 1):
                self.add(seq, consumer_seq, ts_ns)
                consumer_seq += 1

    def pop(self, uint64_t seq, default=None):
        """Remove an entry and return it."""
        cdef Delivered* row = self.find(seq)
        if row == NULL:
            return default
        found = (row.consumer_seq, row.ts)
        self.take(row)
        return found

    def remove_spans(
        self, list spans not None, tuple delivered not None, tuple floor not None
    ) -> tuple:
        """Remove the sequences in these spans, in order, and advance the floor after each: to the
        last delivery if nothing remains, or to just before the lowest remaining entry if the
        removed delivery directly followed the floor.

        `delivered` and `floor` are (consumer sequence, stream sequence). Returns (floor, spans that
        were present).
        """
        cdef uint64_t seq, first, last, consumer_seq
        cdef uint64_t top_consumer = delivered[0], top = delivered[1]
        cdef uint64_t floor_consumer = floor[0], floor_stream = floor[1]
        cdef uint64_t to_consumer, to
        cdef Delivered* row
        taken = Spans()
        for first, last in spans:
            for seq in range(first, last + 1):
                row = self.find(seq)
                if row == NULL:
                    continue
                consumer_seq = row.consumer_seq
                self.take(row)
                taken.add(seq)
                if self.count == 0:
                    to_consumer, to = top_consumer, top
                elif consumer_seq == floor_consumer + 1:
                    to_consumer = self.rows[self.first].consumer_seq
                    to_consumer -= to_consumer > 0
                    to = self.rows[self.first].seq - 1
                else:
                    continue
                if to >= floor_stream:
                    floor_consumer, floor_stream = to_consumer, to
        return (floor_consumer, floor_stream), taken.done()

    def drop_through(self, uint64_t seq) -> None:
        """Remove everything up to a sequence."""
        while self.count and self.rows[self.first].seq <= seq:
            self.take(self.rows + self.first)

    def clear(self) -> None:
        self.count = self.first = self.end = 0

    # -- queries

    def lowest(self) -> int:
        """Return the first sequence; 0 if there is none."""
        return self.rows[self.first].seq if self.count else 0

    def at_least(self, uint64_t seq) -> int:
        """Return the first sequence from this one on; 0 if there is none."""
        cdef size_t at
        if self.count == 0:
            return 0
        at = self.place(seq)
        while at < self.end and self.rows[at].removed:
            at += 1
        return self.rows[at].seq if at < self.end else 0

    def spans_within(self, uint64_t first, uint64_t last) -> list:
        """Return the entries from `first` to `last`, as spans without gaps."""
        cdef size_t i = self.place(first) if self.count else self.end
        taken = Spans()
        while i < self.end and self.rows[i].seq <= last:
            if not self.rows[i].removed:
                taken.add(self.rows[i].seq)
            i += 1
        return taken.done()

    def lowest_consumer(self) -> int:
        """Return the lowest consumer sequence; 0 if there is none."""
        cdef size_t i
        cdef uint64_t lowest = 0
        for i in range(self.first, self.end):
            if not self.rows[i].removed and (lowest == 0 or self.rows[i].consumer_seq < lowest):
                lowest = self.rows[i].consumer_seq
        return lowest

    def through(self, uint64_t seq) -> list:
        """Return every sequence up to this one, ascending."""
        cdef size_t i
        found = []
        for i in range(self.first, self.end):
            if self.rows[i].seq > seq:
                break
            if not self.rows[i].removed:
                found.append(self.rows[i].seq)
        return found

    @property
    def held(self) -> int:
        """Rows in use, including gaps."""
        return self.end - self.first

    # -- as a mapping

    def __len__(self) -> int:
        return self.count

    def __contains__(self, uint64_t seq) -> bool:
        return self.find(seq) != NULL

    def __getitem__(self, uint64_t seq):
        found = self.get(seq)
        if found is None:
            raise KeyError(seq)
        return found

    def get(self, uint64_t seq, default=None):
        cdef Delivered* row = self.find(seq)
        return default if row == NULL else (row.consumer_seq, row.ts)

    def items(self) -> list:
        cdef size_t i
        return [(self.rows[i].seq, (self.rows[i].consumer_seq, self.rows[i].ts))
                for i in range(self.first, self.end) if not self.rows[i].removed]

    def keys(self) -> list:
        return [seq for seq, _ in self.items()]

    def values(self) -> list:
        return [entry for _, entry in self.items()]

    def __iter__(self):
        return iter(self.keys())

    def __eq__(self, other) -> bool:
        if not isinstance(other, Mapping):
            return NotImplemented
        return dict(self.items()) == dict(other.items())

    def __repr__(self) -> str:
        return f"AckPending({dict(self.items())!r})"


Mapping.register(AckPending)


cdef class Spans:
    """Collects sequences; consecutive ones become one span."""
    cdef list spans
    cdef uint64_t first
    cdef uint64_t last

    def __cinit__(self):
        self.spans = []

    cdef void add(self, uint64_t seq):
        if self.first and seq == self.last + 1:
            self.last = seq
            return
        self.done()
        self.first = self.last = seq

    cdef list done(self):
        if self.first:
            self.spans.append((self.first, self.last))
            self.first = 0
        return self.spans
