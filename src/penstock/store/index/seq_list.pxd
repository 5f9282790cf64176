"""C declarations of `seq_list`."""

from libc.stdint cimport uint32_t, uint64_t

cdef extern from *:
    """
    static inline void penstock_prefetch(const void *p) { __builtin_prefetch(p); }
    """
    void prefetch "penstock_prefetch"(const void* p) noexcept nogil

cdef enum:
    SEQS_PER_CHUNK = 510

cdef struct SeqChunk:
    uint32_t start            # live: seqs[start : start + n]
    uint32_t n
    uint64_t seqs[SEQS_PER_CHUNK]

cdef struct SeqList:
    uint64_t count
    uint64_t few[2]           # up to two sequences
    uint64_t* flat            # one array, up to FLAT_MAX
    uint32_t flat_cap
    uint32_t flat_start
    SeqChunk** chunks         # above that
    uint32_t chunk_first      # live chunks: chunks[chunk_first : chunk_last]
    uint32_t chunk_last
    uint32_t chunk_cap

cdef void seqs_push(SeqList* seqs, uint64_t seq) noexcept nogil
cdef bint seqs_remove(SeqList* seqs, uint64_t seq) noexcept nogil
cdef uint64_t seqs_first(SeqList* seqs) noexcept nogil
cdef uint64_t seqs_last(SeqList* seqs) noexcept nogil
cdef uint64_t seqs_at_least(SeqList* seqs, uint64_t seq) noexcept nogil
cdef uint64_t seqs_count_from(SeqList* seqs, uint64_t seq) noexcept nogil
cdef uint64_t seqs_at_most(SeqList* seqs, uint64_t seq) noexcept nogil
cdef void seqs_free(SeqList* seqs) noexcept nogil
cdef size_t seqs_bytes(SeqList* seqs) noexcept nogil

cdef inline void seqs_expect(SeqList* seqs) noexcept nogil:
    """Prefetch the memory that the next `seqs_push` writes to."""
    if seqs.flat != NULL:
        prefetch(seqs.flat + seqs.flat_start + seqs.count)
