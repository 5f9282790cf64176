"""Outboxes: encoded bytes that wait for one peer, in chunks from a shared pool.

An outbox without pending bytes holds no chunk, so ten thousand idle connections use no memory here.
A backlog grows by whole chunks and is never copied; sent chunks return to the pool. The first chunk
is small, because most turns send little to most peers. A large payload for several peers is stored
once: each outbox has a chunk that refers to it, counts all its bytes as pending, and the last chunk
that is sent or dropped frees it.

Pure memory: the layers above decide when to send and when a backlog is too long.
"""

from libc.stdlib cimport free
from libc.string cimport memcpy

from penstock.subjects.trie_nodes cimport xalloc

cdef enum:
    SMALL_BYTES = 4096
    LARGE_BYTES = 65536
    POOLED_SMALL_MAX = 1024      # chunks kept for reuse: 4 MiB
    POOLED_LARGE_MAX = 64        # 4 MiB


cdef Chunk* take_chunk(ChunkPool* pool, bint large) noexcept nogil:
    cdef Chunk* chunk
    cdef uint32_t size = LARGE_BYTES if large else SMALL_BYTES
    if large and pool.large != NULL:
        chunk = pool.large
        pool.large = chunk.next
        pool.nlarge -= 1
    elif not large and pool.small != NULL:
        chunk = pool.small
        pool.small = chunk.next
        pool.nsmall -= 1
    else:
        chunk = <Chunk*>xalloc(size)
        chunk.cap = size - sizeof(Chunk)
        chunk.kind = CHUNK_LARGE if large else CHUNK_SMALL
        chunk.data = <char*>(chunk + 1)
        chunk.shared = NULL
    chunk.next = NULL
    chunk.start = chunk.end = 0
    pool.held += size
    return chunk

cdef void give_chunk(ChunkPool* pool, Chunk* chunk) noexcept nogil:
    if chunk.kind == CHUNK_EXACT:
        pool.held -= sizeof(Chunk)
        if chunk.shared != NULL:
            release_bytes(pool, chunk.shared)
        else:
            pool.held -= chunk.cap
        free(chunk)
        return
    pool.held -= LARGE_BYTES if chunk.kind == CHUNK_LARGE else SMALL_BYTES
    if chunk.kind == CHUNK_LARGE and pool.nlarge < POOLED_LARGE_MAX:
        chunk.next = pool.large
        pool.large = chunk
        pool.nlarge += 1
    elif chunk.kind == CHUNK_SMALL and pool.nsmall < POOLED_SMALL_MAX:
        chunk.next = pool.small
        pool.small = chunk
        pool.nsmall += 1
    else:
        free(chunk)

cdef inline void link_chunk(Outbox* out, Chunk* chunk) noexcept nogil:
    if out.tail == NULL:
        out.head = chunk
    else:
        out.tail.next = chunk
    out.tail = chunk

cdef void add_chunk(ChunkPool* pool, Outbox* out) noexcept nogil:
    """Add a small chunk if it is the first, or follows a shared payload; else a large one."""
    link_chunk(out, take_chunk(pool, out.tail != NULL and out.tail.kind != CHUNK_EXACT))

cdef Chunk* exact_chunk(ChunkPool* pool, size_t own_bytes) noexcept nogil:
    cdef Chunk* chunk = <Chunk*>xalloc(sizeof(Chunk) + own_bytes)
    chunk.next = NULL
    chunk.data = <char*>(chunk + 1)
    chunk.shared = NULL
    chunk.start = chunk.end = 0
    chunk.cap = <uint32_t>own_bytes
    chunk.kind = CHUNK_EXACT
    pool.held += sizeof(Chunk) + own_bytes
    return chunk


cdef SharedBytes* share_bytes(ChunkPool* pool, const char* p, size_t n) noexcept nogil:
    """Return a copy of the bytes for several outboxes; the caller holds one reference."""
    cdef SharedBytes* shared = <SharedBytes*>xalloc(sizeof(SharedBytes) + n)
    shared.refs = 1
    shared.size = n
    memcpy(shared_bytes(shared), p, n)
    pool.shared += n
    return shared

cdef void release_bytes(ChunkPool* pool, SharedBytes* shared) noexcept nogil:
    shared.refs -= 1
    if shared.refs == 0:
        pool.shared -= shared.size
        free(shared)


cdef char* out_reserve(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil:
    """Reserve `n` contiguous bytes, counted as pending; return NULL if no chunk is that large."""
    cdef char* at
    if n > LARGE_BYTES - sizeof(Chunk):
        return NULL
    if out.tail == NULL or out.tail.cap - out.tail.end < n:
        add_chunk(pool, out)
        if out.tail.cap < n:
            add_chunk(pool, out)
    at = chunk_bytes(out.tail) + out.tail.end
    out.tail.end += <uint32_t>n
    out.pending += n
    return at

cdef char* out_reserve_exact(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil:
    """Reserve `n` bytes before a shared payload: in the last chunk, or in a chunk of this size."""
    cdef Chunk* chunk = out.tail
    if chunk == NULL or chunk.cap - chunk.end < n:
        chunk = exact_chunk(pool, n)
        link_chunk(out, chunk)
    chunk.end += <uint32_t>n
    out.pending += n
    return chunk_bytes(chunk) + chunk.end - n

cdef void out_append_shared(ChunkPool* pool, Outbox* out, SharedBytes* shared, size_t start,
                            size_t n) noexcept nogil:
    """Append `n` bytes of a shared payload by reference; the caller keeps its own reference."""
    cdef Chunk* chunk = exact_chunk(pool, 0)
    chunk.data = shared_bytes(shared)
    chunk.shared = shared
    chunk.start = <uint32_t>start
    chunk.cap = chunk.end = <uint32_t>(start + n)       # full: nothing is appended to it
    shared.refs += 1
    link_chunk(out, chunk)
    out.pending += n

cdef void out_append(ChunkPool* pool, Outbox* out, const char* p, size_t n) noexcept nogil:
    cdef size_t room
    out.pending += n
    while n:
        room = out.tail.cap - out.tail.end if out.tail != NULL else 0
        if room == 0:
            add_chunk(pool, out)
            continue
        room = min(room, n)
        memcpy(chunk_bytes(out.tail) + out.tail.end, p, room)
        out.tail.end += <uint32_t>room
        p += room
        n -= room

cdef void out_consume(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil:
    """Remove the first `n` bytes, which are sent, and return empty chunks to the pool."""
    cdef Chunk* chunk
    cdef size_t held
    out.pending -= n
    while out.head != NULL:
        chunk = out.head
        held = chunk.end - chunk.start
        if held > n:
            chunk.start += <uint32_t>n
            return
        n -= held
        out.head = chunk.next
        if out.head == NULL:
            out.tail = NULL
        give_chunk(pool, chunk)

cdef void out_clear(ChunkPool* pool, Outbox* out) noexcept nogil:
    out_consume(pool, out, out.pending)

cdef void pool_free(ChunkPool* pool) noexcept nogil:
    cdef Chunk* chunk
    while pool.small != NULL:
        chunk = pool.small
        pool.small = chunk.next
        free(chunk)
    while pool.large != NULL:
        chunk = pool.large
        pool.large = chunk.next
        free(chunk)
    pool.nsmall = pool.nlarge = 0
