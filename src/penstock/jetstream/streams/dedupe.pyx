"""Duplicate window: recent message ids, so that the stream acks a repeated publish without storing
it.

An id is valid for the window's length, counted from the timestamp of its message. The window is a
cache of the stored messages: stream recovery refills it after a restart. It reads no clock.

It is the only owner of ids; the fast lane and `Stream.plan` both use it. It is a hash table whose
entries are linked from the oldest to the newest. The id of the stream's last message is kept beside
the table for as long as that message is the last one.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from penstock.subjects.trie_nodes cimport hash_bytes, xalloc, xrealloc, xzalloc

cdef enum:
    FORGOTTEN_PER_STORE = 2       # expired ids removed per insert, so that shrinking needs no timer
    LEAST_SLOTS = 64


cdef inline char* text_of(SeenId* seen) noexcept nogil:
    return <char*>(seen + 1)


cdef class DuplicateWindow:
    """Ids and their sequences, oldest first. A window of 0 stores nothing."""

    def __cinit__(self, int64_t window_ns):
        self._window_ns = window_ns
        # Seeded per process, so that a client cannot choose ids that collide.
        self.seed = <uint64_t><int64_t>hash(b"message ids")

    def __dealloc__(self):
        self.forget_all()
        free(self.last)

    def __len__(self) -> int:
        return self.count

    @property
    def window_ns(self) -> int:
        """How long an id is valid; a change also applies to stored ids."""
        return self._window_ns

    @window_ns.setter
    def window_ns(self, int64_t window_ns) -> None:
        self._window_ns = window_ns
        if window_ns <= 0:
            self.forget_all()

    @property
    def last_id(self) -> bytes:
        """The id of the stream's last message; empty if it has none."""
        return self.last[:self.last_len] if self.last_len else b""

    @last_id.setter
    def last_id(self, bytes msg_id not None) -> None:
        self.note_last(PyBytes_AS_STRING(msg_id), PyBytes_GET_SIZE(msg_id))

    def find(self, bytes msg_id not None, int64_t now_ns) -> int:
        """Return the sequence of the message with this id within the window; 0 if there is none."""
        return self.seq_of(PyBytes_AS_STRING(msg_id), PyBytes_GET_SIZE(msg_id), now_ns)

    def add(self, bytes msg_id not None, uint64_t seq, int64_t ts_ns) -> None:
        """Record the id of a stored message. Timestamps never decrease between calls."""
        self.put(PyBytes_AS_STRING(msg_id), PyBytes_GET_SIZE(msg_id), seq, ts_ns)

    def expire(self, int64_t now_ns) -> None:
        """Remove all expired ids."""
        self.forget(now_ns, self.count)

    def next_deadline_ns(self) -> int | None:
        """Return when the oldest id expires, or None."""
        if self.oldest == NULL:
            return None
        return <object>self.oldest.ts_ns + <object>self._window_ns

    # -- for lanes

    cdef uint64_t seq_of(self, const char* text, size_t n, int64_t now_ns) noexcept nogil:
        cdef SeenId* seen
        if self.count == 0:
            return 0
        seen = self.place_of(text, n, <uint32_t>hash_bytes(text, n, self.seed))[0]
        if seen == NULL or now_ns - seen.ts_ns >= self._window_ns:
            return 0
        return seen.seq

    cdef void put(self, const char* text, size_t n, uint64_t seq, int64_t ts_ns) noexcept nogil:
        cdef uint32_t hashed = <uint32_t>hash_bytes(text, n, self.seed)
        cdef SeenId** place
        cdef SeenId* seen
        if self._window_ns <= 0:
            return
        self.forget(ts_ns, FORGOTTEN_PER_STORE)
        if self.count >= self.nslots:
            self.grow()
        place = self.place_of(text, n, hashed)
        if place[0] != NULL:
            self.take_out(place)
            place = self.place_of(text, n, hashed)
        seen = <SeenId*>xalloc(sizeof(SeenId) + n)
        seen.seq = seq
        seen.ts_ns = ts_ns
        seen.hash = hashed
        seen.length = <uint32_t>n
        memcpy(text_of(seen), text, n)
        seen.chained = NULL
        place[0] = seen
        seen.older, seen.newer = self.newest, NULL
        if self.newest == NULL:
            self.oldest = seen
        else:
            self.newest.newer = seen
        self.newest = seen
        self.count += 1

    cdef void note_last(self, const char* text, size_t n) noexcept nogil:
        if n > self.last_cap:
            self.last_cap = <uint32_t>n
            self.last = <char*>xrealloc(self.last, n)
        if n:
            memcpy(self.last, text, n)
        self.last_len = <uint32_t>n

    cdef bint is_last(self, const char* text, size_t n) noexcept nogil:
        return n == self.last_len and (n == 0 or memcmp(text, self.last, n) == 0)

    # -- the table

    cdef SeenId** place_of(self, const char* text, size_t n, uint32_t hashed) noexcept nogil:
        """Return the pointer that refers to the id, or the one that would."""
        cdef SeenId** place = self.slots + (hashed & (self.nslots - 1))
        while place[0] != NULL and not (place[0].hash == hashed and place[0].length == n
                                        and memcmp(text_of(place[0]), text, n) == 0):
            place = &place[0].chained
        return place

    cdef void take_out(self, SeenId** place) noexcept nogil:
        cdef SeenId* seen = place[0]
        place[0] = seen.chained
        if seen.older == NULL:
            self.oldest = seen.newer
        else:
            seen.older.newer = seen.newer
        if seen.newer == NULL:
            self.newest = seen.older
        else:
            seen.newer.older = seen.older
        free(seen)
        self.count -= 1

    cdef void forget(self, int64_t now_ns, uint32_t at_most) noexcept nogil:
        cdef SeenId* seen = self.oldest
        while seen != NULL and at_most and now_ns - seen.ts_ns >= self._window_ns:
            self.take_out(self.place_of(text_of(seen), seen.length, seen.hash))
            seen = self.oldest
            at_most -= 1
        if self.oldest == NULL and self.nslots > LEAST_SLOTS:
            free(self.slots)
            self.slots = NULL
            self.nslots = 0

    cdef void grow(self) noexcept nogil:
        cdef SeenId* seen = self.oldest
        cdef SeenId** place
        free(self.slots)
        self.nslots = max(2 * self.nslots, <uint32_t>LEAST_SLOTS)
        self.slots = <SeenId**>xzalloc(self.nslots * sizeof(SeenId*))
        while seen != NULL:
            place = self.slots + (seen.hash & (self.nslots - 1))
            seen.chained = place[0]
            place[0] = seen
            seen = seen.newer

    cdef void forget_all(self) noexcept nogil:
        cdef SeenId* seen = self.oldest
        cdef SeenId* following
        while seen != NULL:
            following = seen.newer
            free(seen)
            seen = following
        free(self.slots)
        self.slots = NULL
        self.nslots = self.count = 0
        self.oldest = self.newest = NULL
