"""Outboxes: encoded bytes that wait for one peer, in chunks from a shared pool.

A peer with nothing to say holds no chunk, so ten thousand idle connections cost nothing here; a
backlog grows by whole chunks and is never copied; what has been sent goes back to the pool. The
first chunk is small, because most turns have little to say to most peers.

Pure memory: when to send, and when a backlog is too long, is decided above.
"""

from libc.stdlib cimport free
from libc.string cimport memcpy

from penstock.subjects.nodes cimport xalloc

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
        chunk.large = large
    chunk.next = NULL
    chunk.start = chunk.end = 0
    pool.held += size
    return chunk

cdef void give_chunk(ChunkPool* pool, Chunk* chunk) noexcept nogil:
    pool.held -= LARGE_BYTES if chunk.large else SMALL_BYTES
    if chunk.large and pool.nlarge < POOLED_LARGE_MAX:
        chunk.next = pool.large
        pool.large = chunk
        pool.nlarge += 1
    elif not chunk.large and pool.nsmall < POOLED_SMALL_MAX:
        chunk.next = pool.small
        pool.small = chunk
        pool.nsmall += 1
    else:
        free(chunk)

cdef void add_chunk(ChunkPool* pool, Outbox* out) noexcept nogil:
    cdef Chunk* chunk = take_chunk(pool, out.head != NULL)
    if out.tail == NULL:
        out.head = chunk
    else:
        out.tail.next = chunk
    out.tail = chunk

cdef char* out_reserve(ChunkPool* pool, Outbox* out, size_t n) noexcept nogil:
    """Room for `n` bytes in one piece, counted as pending; NULL if no chunk is that large."""
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
    """The first `n` bytes are sent. Empty chunks, also those skipped by reserve, go back."""
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
