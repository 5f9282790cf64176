"""C interface of the outbox: encoded bytes that wait for one peer."""

from libc.stdint cimport int64_t, uint32_t

cdef enum ChunkKind:
    CHUNK_SMALL = 0       # from the pool
    CHUNK_LARGE = 1       # from the pool
    CHUNK_EXACT = 2       # allocated for its bytes, freed after they are sent

cdef struct SharedBytes:
    int64_t refs
    size_t size
    # the bytes follow

cdef struct Chunk:
    Chunk* next
    char* data
    SharedBytes* shared   # NULL: `data` belongs to the chunk
    uint32_t start
    uint32_t end
    uint32_t cap
    uint32_t kind
    # the bytes follow, unless they are shared

cdef struct ChunkPool:
    Chunk* small
    Chunk* large
    uint32_t nsmall
    uint32_t nlarge
    int64_t held          # bytes of chunks that outboxes use
    int64_t shared        # bytes of shared payloads, each counted once

cdef struct Outbox:
    Chunk* head
    Chunk* tail
    int64_t pending

cdef inline char* chunk_bytes(Chunk* chunk) noexcept nogil:
    return chunk.data

cdef inline char* shared_bytes(SharedBytes* shared) noexcept nogil:
    return <char*>(shared + 1)

cdef SharedBytes* share_bytes(ChunkPool* pool, const char* p, size_t n) noexcept nogil
cdef void release_bytes(ChunkPool* pool, SharedBytes* shared) noexcept nogil

cdef char* out_reserve(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil
cdef char* out_reserve_exact(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil
cdef void out_append(ChunkPool* pool, Outbox* out, const char* p, size_t n) noexcept nogil
cdef void out_append_shared(ChunkPool* pool, Outbox* out, SharedBytes* shared, size_t start,
                            size_t n) noexcept nogil
cdef void out_consume(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil
cdef void out_clear(ChunkPool* pool, Outbox* out) noexcept nogil
cdef void pool_free(ChunkPool* pool) noexcept nogil
