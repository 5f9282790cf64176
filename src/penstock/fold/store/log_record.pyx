"""Code shared by `log_codec` and `log_scan`: the checksum and the value record.

The checksum is zlib's CRC-32, computed eight bytes at a time without a call into Python. A value
record is the part of a put that `FoldMap` stores: the version field, then the value. `pgss` defines
the layout.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcpy

cdef uint32_t TABLES[8][256]


cdef void make_tables() noexcept:
    cdef uint32_t number, crc
    cdef int bit, table
    for number in range(256):
        crc = number
        for bit in range(8):
            crc = (crc >> 1) ^ (<uint32_t>0xEDB88320 if crc & 1 else 0)
        TABLES[0][number] = crc
    for number in range(256):
        for table in range(1, 8):
            crc = TABLES[table - 1][number]
            TABLES[table][number] = (crc >> 8) ^ TABLES[0][crc & 0xFF]


make_tables()


cdef uint32_t checksum(const uint8_t* data, Py_ssize_t size) noexcept nogil:
    cdef uint32_t crc = 0xFFFFFFFF
    cdef uint32_t low, high
    while size >= 8:
        low = crc ^ get_u32(data)
        high = get_u32(data + 4)
        crc = (
            TABLES[7][low & 0xFF] ^ TABLES[6][(low >> 8) & 0xFF]
            ^ TABLES[5][(low >> 16) & 0xFF] ^ TABLES[4][low >> 24]
            ^ TABLES[3][high & 0xFF] ^ TABLES[2][(high >> 8) & 0xFF]
            ^ TABLES[1][(high >> 16) & 0xFF] ^ TABLES[0][high >> 24]
        )
        data += 8
        size -= 8
    while size > 0:
        crc = (crc >> 8) ^ TABLES[0][(crc ^ data[0]) & 0xFF]
        data += 1
        size -= 1
    return crc ^ <uint32_t>0xFFFFFFFF


cdef bytes value_record(
    const char* version, Py_ssize_t version_size, const char* value, Py_ssize_t value_size
):
    """Return a value record; `version` starts with its length byte."""
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, version_size + value_size)
    memcpy(PyBytes_AS_STRING(whole), version, version_size)
    memcpy(PyBytes_AS_STRING(whole) + version_size, value, value_size)
    return whole
