"""C declarations for append-log records: constants of the layout, checksum, value record."""

from cpython.bytes cimport PyBytes_GET_SIZE
from libc.stdint cimport uint8_t, uint32_t

cdef enum:
    PUT = 1
    DELETE = 2
    CURSOR = 3
    HEAD_BYTES = 7
    RECORD_BYTES_MIN = 6
    PUT_OVERHEAD = 11
    KEY_BYTES_MAX = 65535
    VALUE_BYTES_MAX = 16777216
    TOKEN_BYTES_MAX = 10
    MEMO_BYTES = 12
    MEMO_TIMED_BYTES = 20
    MEMO_EVICTING = 1
    MEMO_TIMED = 2


cdef inline uint32_t get_u32(const uint8_t* at) noexcept nogil:
    return at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)


cdef inline void put_u32(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = number & 0xFF
    at[1] = (number >> 8) & 0xFF
    at[2] = (number >> 16) & 0xFF
    at[3] = (number >> 24) & 0xFF


cdef inline Py_ssize_t put_bytes(Py_ssize_t key_size, object record) noexcept:
    """Return the size of a put record with this key size and value record."""
    return PUT_OVERHEAD + key_size + PyBytes_GET_SIZE(record)


cdef uint32_t checksum(const uint8_t* data, Py_ssize_t size) noexcept nogil
cdef bytes value_record(
    const char* version, Py_ssize_t version_size, const char* value, Py_ssize_t value_size
)
