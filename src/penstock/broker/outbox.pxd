"""C surface of the outbox: encoded bytes that wait for one peer."""

from libc.stdint cimport int64_t, uint32_t

cdef struct Chunk:
    Chunk* next
    uint32_t start
    uint32_t end
    uint32_t cap
    uint32_t large
    # the bytes follow

cdef struct ChunkPool:
    Chunk* small
    Chunk* large
    uint32_t nsmall
    uint32_t nlarge
    int64_t held          # bytes of chunks in use by outboxes

cdef struct Outbox:
    Chunk* head
    Chunk* tail
    int64_t pending

cdef inline char* chunk_bytes(Chunk* chunk) noexcept nogil:
    return <char*>(chunk + 1)

cdef char* out_reserve(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil
cdef void out_append(ChunkPool* pool, Outbox* out, const char* p, size_t n) noexcept nogil
cdef void out_consume(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil
cdef void out_clear(ChunkPool* pool, Outbox* out) noexcept nogil
cdef void pool_free(ChunkPool* pool) noexcept nogil
