"""The sequences of one subject: a sorted list that is cheap when small and fast when large.

Sequences are added at the end and removed anywhere. Up to two are stored inline, some hundreds in
one array, more in chunks. So a removal moves a few kilobytes at most, and a million subjects with
one message each need no allocation. Ranks are exact: the number of sequences at or after a given
one is counted by chunk, then by position.
"""

from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset

from penstock.subjects.trie_nodes cimport xalloc, xrealloc

cdef enum:
    FEW = 2
    FLAT_MAX = 256            # above: chunks
    HALVED_MAX = 16           # up to so many, a binary search stays within few cache lines


cdef inline uint64_t* flat_seqs(SeqList* seqs) noexcept nogil:
    return &seqs.few[0] if seqs.flat == NULL else seqs.flat + seqs.flat_start

cdef uint32_t lower_bound(const uint64_t* seqs, uint32_t n, uint64_t seq) noexcept nogil:
    """Return how many of the n sequences are below `seq`."""
    cdef uint32_t low = 0, high = n, middle, step = 1
    if n > HALVED_MAX:
        # Interpolate first, as for chunks: a binary search has a cache miss at each step.
        if seqs[0] >= seq:
            return 0
        if seqs[n - 1] < seq:
            return n
        middle = guess(seqs[0], seqs[n - 1], n, seq)
        if seqs[middle] < seq:
            low = middle + 1
            while high - low > step and seqs[low + step - 1] < seq:
                low += step
                step *= 2
            high = min(high, low + step)
        else:
            high = middle
            while high - low > step and seqs[high - step] >= seq:
                high -= step
                step *= 2
            low = max(low, high - step if high > step else 0)
    while low < high:
        middle = (low + high) >> 1
        if seqs[middle] < seq:
            low = middle + 1
        else:
            high = middle
    return low

cdef inline uint32_t guess(uint64_t first, uint64_t last, uint32_t n, uint64_t seq) noexcept nogil:
    """Estimate the index of `seq` among n sequences spread evenly from `first` to `last`."""
    return <uint32_t>(<double>(seq - first) / <double>(last - first) * (n - 1))

cdef inline uint64_t last_in(SeqChunk* chunk) noexcept nogil:
    return chunk.seqs[chunk.start + chunk.n - 1]

cdef uint32_t chunk_of(SeqList* seqs, uint64_t seq) noexcept nogil:
    """Return the first chunk whose last sequence is at or after `seq`; chunk_last if none is.

    Estimates the position by interpolation, then searches around it. With millions of sequences
    a pure binary search has a dozen cache misses.
    """
    cdef uint32_t low = seqs.chunk_first, high = seqs.chunk_last, middle, step = 1
    cdef uint64_t first, last
    if low == high or last_in(seqs.chunks[low]) >= seq:
        return low              # limits remove the oldest: skip the search
    first, last = last_in(seqs.chunks[low]), last_in(seqs.chunks[high - 1])
    if last < seq:
        return high
    middle = low + guess(first, last, high - low, seq)
    if last_in(seqs.chunks[middle]) < seq:
        low = middle + 1
        while high - low > step and last_in(seqs.chunks[low + step - 1]) < seq:
            low += step
            step *= 2
        high = min(high, low + step)
    else:
        high = middle
        while high - low > step and last_in(seqs.chunks[high - step]) >= seq:
            high -= step
            step *= 2
        low = max(low, high - step if high > step else 0)
    while low < high:
        middle = (low + high) >> 1
        if last_in(seqs.chunks[middle]) < seq:
            low = middle + 1
        else:
            high = middle
    return low

cdef void push_chunk(SeqList* seqs, uint64_t seq) noexcept nogil:
    cdef SeqChunk* chunk = NULL
    cdef uint32_t live = seqs.chunk_last - seqs.chunk_first
    if live:
        chunk = seqs.chunks[seqs.chunk_last - 1]
    if chunk == NULL or chunk.start + chunk.n == SEQS_PER_CHUNK:
        if seqs.chunk_last == seqs.chunk_cap:
            if 2 * live < seqs.chunk_cap:
                memmove(seqs.chunks, seqs.chunks + seqs.chunk_first, live * sizeof(SeqChunk*))
                seqs.chunk_first = 0
                seqs.chunk_last = live
            else:
                seqs.chunk_cap = 2 * seqs.chunk_cap + 4
                seqs.chunks = <SeqChunk**>xrealloc(seqs.chunks,
                                                  seqs.chunk_cap * sizeof(SeqChunk*))
        chunk = <SeqChunk*>xalloc(sizeof(SeqChunk))
        chunk.start = chunk.n = 0
        seqs.chunks[seqs.chunk_last] = chunk
        seqs.chunk_last += 1
    chunk.seqs[chunk.start + chunk.n] = seq
    chunk.n += 1

cdef void to_chunks(SeqList* seqs) noexcept nogil:
    cdef uint64_t i
    cdef uint64_t* old = flat_seqs(seqs)
    for i in range(seqs.count):
        push_chunk(seqs, old[i])
    free(seqs.flat)
    seqs.flat = NULL

cdef void push_flat(SeqList* seqs, uint64_t seq) noexcept nogil:
    cdef uint64_t* grown
    cdef uint32_t cap
    if seqs.flat == NULL or seqs.flat_start + seqs.count == seqs.flat_cap:
        cap = <uint32_t>(2 * seqs.count)
        grown = <uint64_t*>xalloc(cap * sizeof(uint64_t))
        memcpy(grown, flat_seqs(seqs), seqs.count * sizeof(uint64_t))
        free(seqs.flat)
        seqs.flat = grown
        seqs.flat_cap = cap
        seqs.flat_start = 0
    seqs.flat[seqs.flat_start + seqs.count] = seq

cdef void seqs_push(SeqList* seqs, uint64_t seq) noexcept nogil:
    """Append a sequence, which is above all others."""
    if seqs.chunks != NULL:
        push_chunk(seqs, seq)
    elif seqs.flat == NULL and seqs.count < FEW:
        seqs.few[seqs.count] = seq
    elif seqs.count < FLAT_MAX:
        push_flat(seqs, seq)
    else:
        to_chunks(seqs)
        push_chunk(seqs, seq)
    seqs.count += 1

cdef bint remove_flat(SeqList* seqs, uint64_t seq) noexcept nogil:
    cdef uint64_t* live = flat_seqs(seqs)
    cdef uint32_t at = lower_bound(live, <uint32_t>seqs.count, seq)
    if at == seqs.count or live[at] != seq:
        return False
    if at == 0 and seqs.flat != NULL:
        seqs.flat_start += 1
    else:
        memmove(live + at, live + at + 1, (seqs.count - at - 1) * sizeof(uint64_t))
    return True

cdef bint remove_chunked(SeqList* seqs, uint64_t seq) noexcept nogil:
    cdef uint32_t i = chunk_of(seqs, seq), at
    cdef SeqChunk* chunk
    if i == seqs.chunk_last:
        return False
    chunk = seqs.chunks[i]
    at = lower_bound(chunk.seqs + chunk.start, chunk.n, seq)
    if chunk.seqs[chunk.start + at] != seq:
        return False
    if at == 0:
        chunk.start += 1
    else:
        memmove(chunk.seqs + chunk.start + at, chunk.seqs + chunk.start + at + 1,
                (chunk.n - at - 1) * sizeof(uint64_t))
    chunk.n -= 1
    if chunk.n == 0:
        free(chunk)
        if i == seqs.chunk_first:
            seqs.chunk_first += 1
        else:
            memmove(seqs.chunks + i, seqs.chunks + i + 1,
                    (seqs.chunk_last - i - 1) * sizeof(SeqChunk*))
            seqs.chunk_last -= 1
    return True

cdef bint seqs_remove(SeqList* seqs, uint64_t seq) noexcept nogil:
    cdef bint found = (remove_chunked(seqs, seq) if seqs.chunks != NULL
                       else remove_flat(seqs, seq))
    if found:
        seqs.count -= 1
        if seqs.count == 0:
            seqs_free(seqs)
    return found

cdef uint64_t seqs_first(SeqList* seqs) noexcept nogil:
    """Return the first sequence; 0 if there is none."""
    if seqs.count == 0:
        return 0
    if seqs.chunks != NULL:
        return seqs.chunks[seqs.chunk_first].seqs[seqs.chunks[seqs.chunk_first].start]
    return flat_seqs(seqs)[0]

cdef uint64_t seqs_last(SeqList* seqs) noexcept nogil:
    cdef SeqChunk* chunk
    if seqs.count == 0:
        return 0
    if seqs.chunks != NULL:
        chunk = seqs.chunks[seqs.chunk_last - 1]
        return chunk.seqs[chunk.start + chunk.n - 1]
    return flat_seqs(seqs)[seqs.count - 1]

cdef uint64_t seqs_at_least(SeqList* seqs, uint64_t seq) noexcept nogil:
    """Return the first sequence at or after `seq`; 0 if there is none."""
    cdef uint32_t i, at
    cdef SeqChunk* chunk
    if seqs.chunks != NULL:
        i = chunk_of(seqs, seq)
        if i == seqs.chunk_last:
            return 0
        chunk = seqs.chunks[i]
        return chunk.seqs[chunk.start + lower_bound(chunk.seqs + chunk.start, chunk.n, seq)]
    at = lower_bound(flat_seqs(seqs), <uint32_t>seqs.count, seq)
    return flat_seqs(seqs)[at] if at < seqs.count else 0

cdef uint64_t seqs_at_most(SeqList* seqs, uint64_t seq) noexcept nogil:
    """Return the last sequence at or before `seq`; 0 if there is none."""
    cdef uint32_t i, at
    cdef SeqChunk* chunk
    if seqs.count == 0 or seqs_last(seqs) <= seq:
        return seqs_last(seqs)
    if seqs.chunks == NULL:
        at = lower_bound(flat_seqs(seqs), <uint32_t>seqs.count, seq + 1)
        return flat_seqs(seqs)[at - 1] if at else 0
    i = chunk_of(seqs, seq + 1)         # it exists: the last sequence is above `seq`
    chunk = seqs.chunks[i]
    at = lower_bound(chunk.seqs + chunk.start, chunk.n, seq + 1)
    if at:
        return chunk.seqs[chunk.start + at - 1]
    if i == seqs.chunk_first:
        return 0
    chunk = seqs.chunks[i - 1]
    return chunk.seqs[chunk.start + chunk.n - 1]

cdef uint64_t seqs_count_from(SeqList* seqs, uint64_t seq) noexcept nogil:
    """Return how many sequences are at or after `seq`."""
    cdef uint32_t i, j
    cdef SeqChunk* chunk
    cdef uint64_t count = 0
    if seqs.chunks == NULL:
        return seqs.count - lower_bound(flat_seqs(seqs), <uint32_t>seqs.count, seq)
    i = chunk_of(seqs, seq)
    if i == seqs.chunk_last:
        return 0
    chunk = seqs.chunks[i]
    # Count from the nearer end.
    if 2 * (i - seqs.chunk_first) < seqs.chunk_last - seqs.chunk_first:
        for j in range(seqs.chunk_first, i):
            count += seqs.chunks[j].n
        return seqs.count - count - lower_bound(chunk.seqs + chunk.start, chunk.n, seq)
    for j in range(i + 1, seqs.chunk_last):
        count += seqs.chunks[j].n
    return count + chunk.n - lower_bound(chunk.seqs + chunk.start, chunk.n, seq)

cdef void seqs_free(SeqList* seqs) noexcept nogil:
    cdef uint32_t i
    for i in range(seqs.chunk_first, seqs.chunk_last):
        free(seqs.chunks[i])
    free(seqs.chunks)
    free(seqs.flat)
    memset(seqs, 0, sizeof(SeqList))

cdef size_t seqs_bytes(SeqList* seqs) noexcept nogil:
    """Return the memory held beyond the struct itself."""
    if seqs.chunks != NULL:
        return (seqs.chunk_cap * sizeof(SeqChunk*)
                + (seqs.chunk_last - seqs.chunk_first) * sizeof(SeqChunk))
    return seqs.flat_cap * sizeof(uint64_t) if seqs.flat != NULL else 0


cdef class SequenceList:
    """The list for Python: tests and tools use it."""

    cdef SeqList seqs

    def __dealloc__(self):
        seqs_free(&self.seqs)

    def __len__(self) -> int:
        return self.seqs.count

    def push(self, uint64_t seq) -> None:
        if self.seqs.count and seq <= seqs_last(&self.seqs):
            raise ValueError("sequences come in order")
        seqs_push(&self.seqs, seq)

    def remove(self, uint64_t seq) -> bool:
        return self.seqs.count > 0 and seqs_remove(&self.seqs, seq)

    def first(self) -> int:
        return seqs_first(&self.seqs)

    def last(self) -> int:
        return seqs_last(&self.seqs)

    def at_least(self, uint64_t seq) -> int:
        return seqs_at_least(&self.seqs, seq)

    def at_most(self, uint64_t seq) -> int:
        return seqs_at_most(&self.seqs, seq)

    def count_from(self, uint64_t seq) -> int:
        return seqs_count_from(&self.seqs, seq)
