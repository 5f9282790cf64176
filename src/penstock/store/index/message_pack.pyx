"""Packed messages: many messages in one bytes value, without an object for each.

```text
u32 subject bytes | u32 header bytes | u32 payload bytes | subject | header | payload | next ...
```

Numbers are little-endian. The messages of an atomic batch wait in this form for its commit, and the
entry that stores them contains it. It is not a file format: readers check only that they do not
read past the end, not for damage.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from penstock.store.index.record_log cimport RecordLog
from penstock.subjects.trie_nodes cimport xrealloc

cdef enum:
    SIZES_BYTES = 12
    LEAST_BYTES = 4096


cdef inline uint32_t number_at(const char* at) noexcept nogil:
    cdef const unsigned char* b = <const unsigned char*>at
    return b[0] | <uint32_t>b[1] << 8 | <uint32_t>b[2] << 16 | <uint32_t>b[3] << 24


cdef inline void put_number(char* at, uint32_t value) noexcept nogil:
    cdef unsigned char* b = <unsigned char*>at
    b[0] = value & 255
    b[1] = (value >> 8) & 255
    b[2] = (value >> 16) & 255
    b[3] = value >> 24


cdef const char* read_packed(const char* at, const char* end, Packed* found) noexcept nogil:
    """Read the message at `at` into `found`; return the next position, NULL if incomplete."""
    if end - at < SIZES_BYTES:
        return NULL
    found.subject_len = number_at(at)
    found.header_len = number_at(at + 4)
    found.payload_len = number_at(at + 8)
    found.subject = at + SIZES_BYTES
    if (<size_t>found.subject_len + found.header_len + found.payload_len
            > <size_t>(end - found.subject)):
        return NULL
    found.header = found.subject + found.subject_len
    found.payload = found.header + found.header_len
    return found.payload + found.payload_len


cdef class Packer:
    """Packs messages in the order of arrival."""

    def __dealloc__(self):
        free(self.data)

    cdef void put(self, Packed* one) noexcept nogil:
        cdef size_t size = (
            SIZES_BYTES + <size_t>one.subject_len + one.header_len + one.payload_len)
        cdef char* at
        if self.used + size > self.cap:
            self.cap = max(2 * self.cap, self.used + size, <size_t>LEAST_BYTES)
            self.data = <char*>xrealloc(self.data, self.cap)
        at = self.data + self.used
        put_number(at, one.subject_len)
        put_number(at + 4, one.header_len)
        put_number(at + 8, one.payload_len)
        at += SIZES_BYTES
        memcpy(at, one.subject, one.subject_len)
        memcpy(at + one.subject_len, one.header, one.header_len)
        memcpy(at + one.subject_len + one.header_len, one.payload, one.payload_len)
        self.used += size
        self.count += 1

    def add(self, bytes subject not None, bytes header not None, bytes payload not None) -> None:
        """Add one message."""
        cdef Packed one
        one.subject, one.subject_len = PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject)
        one.header, one.header_len = PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header)
        one.payload, one.payload_len = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
        self.put(&one)

    def packed(self) -> bytes:
        """Return all messages packed so far."""
        return PyBytes_FromStringAndSize(self.data, self.used)


def unpacked(bytes packed not None) -> list:
    """Return (subject, header, payload) of each message."""
    cdef const char* at = PyBytes_AS_STRING(packed)
    cdef const char* end = at + PyBytes_GET_SIZE(packed)
    cdef Packed one
    found = []
    while at < end:
        at = read_packed(at, end, &one)
        if at == NULL:
            raise ValueError("a packed message is not whole")
        found.append((
            one.subject[:one.subject_len].decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(one.header, one.header_len),
            PyBytes_FromStringAndSize(one.payload, one.payload_len),
        ))
    return found


def holds_subject(bytes packed not None, str subject not None) -> bool:
    """Return whether any message has exactly this subject."""
    cdef const char* at = PyBytes_AS_STRING(packed)
    cdef const char* end = at + PyBytes_GET_SIZE(packed)
    cdef bytes raw = subject.encode("utf-8", "surrogateescape")
    cdef size_t n = PyBytes_GET_SIZE(raw)
    cdef Packed one
    while at < end:
        at = read_packed(at, end, &one)
        if at == NULL:
            return False
        if one.subject_len == n and memcmp(one.subject, PyBytes_AS_STRING(raw), n) == 0:
            return True
    return False


def append_packed(RecordLog log not None, bytes packed not None, int64_t ts_ns) -> None:
    """Append all messages in order. The caller enforces the limits."""
    cdef const char* at = PyBytes_AS_STRING(packed)
    cdef const char* end = at + PyBytes_GET_SIZE(packed)
    cdef Packed one
    while at < end:
        at = read_packed(at, end, &one)
        if at == NULL:
            raise ValueError("a packed message is not whole")
        log.put(one.subject, one.subject_len, one.header, one.header_len, one.payload,
                one.payload_len, ts_ns, 0, 0)
