"""Reads the records of an append log from a file's bytes; hot path of opening a log.

Records are returned as a list, or applied to a map of value records. `find_record` searches a tail
for records that a damaged length hides. `pgss` defines the layout and interprets the verdicts; the
reference is the naive model in the tests. Every length is checked against the end of the bytes
before anything after it is read.
"""

from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint8_t

from penstock.fold.store.log_record cimport (
    CURSOR, DELETE, HEAD_BYTES, MEMO_BYTES, MEMO_EVICTING, MEMO_TIMED, MEMO_TIMED_BYTES, PUT,
    RECORD_BYTES_MIN, TOKEN_BYTES_MAX, VALUE_BYTES_MAX, checksum, get_u32, put_bytes, value_record,
)

# Results of `find_record` that are not offsets.
NO_RECORD = -1
TOO_COSTLY = -2

# Verdicts: why reading stopped.
END = 0
FULL = 1
TORN = 2
DAMAGED = 3
BAD_TYPE = 4
BAD_ZEROS = 5
BAD_VERSION = 6
BAD_CURSOR = 7
BAD_MEMO = 8

cdef enum:
    V_OK = -1
    V_END = 0
    V_TORN = 2
    V_DAMAGED = 3
    V_BAD_TYPE = 4
    V_BAD_ZEROS = 5
    V_BAD_VERSION = 6
    V_BAD_CURSOR = 7
    V_BAD_MEMO = 8

cdef struct Record:
    int kind
    Py_ssize_t key
    Py_ssize_t key_size
    Py_ssize_t value
    Py_ssize_t value_size
    Py_ssize_t version
    Py_ssize_t version_size
    bint evicting
    Py_ssize_t stop


cdef int parse(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t start, Record* record
) noexcept nogil:
    """Parse the record at `start`; return V_OK or the reason for failure."""
    cdef Py_ssize_t rest = size - start
    cdef uint8_t kind
    if rest < 5:
        return V_TORN
    kind = data[start + 4]
    record.kind = kind
    if kind == CURSOR:
        return parse_cursor(data, size, start, record)
    if kind != PUT and kind != DELETE:
        return unknown(data, size, start)
    if rest < HEAD_BYTES:
        return V_TORN
    record.key = start + HEAD_BYTES
    record.key_size = data[start + 5] | (<Py_ssize_t>data[start + 6] << 8)
    record.value = record.version = record.key + record.key_size
    record.value_size = 0
    if kind == PUT:
        record.value += 4
        if record.value > size:
            return V_TORN
        record.value_size = get_u32(data + record.version)
        if record.value_size > VALUE_BYTES_MAX:
            return damaged(size, record.value)
        record.version = record.value + record.value_size
    if record.version >= size:
        return V_TORN
    if data[record.version] > TOKEN_BYTES_MAX:
        return V_BAD_VERSION
    record.version_size = 1 + data[record.version]
    record.stop = record.version + record.version_size
    if record.stop > size:
        return V_TORN
    if checksum(data + start + 4, record.stop - start - 4) != get_u32(data + start):
        return damaged(size, record.stop)
    return V_OK


cdef int parse_cursor(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t start, Record* record
) noexcept nogil:
    cdef Py_ssize_t length
    cdef uint8_t flags
    if size - start < RECORD_BYTES_MIN:
        return V_TORN
    length = data[start + 5]
    if length > TOKEN_BYTES_MAX and length != MEMO_BYTES and length != MEMO_TIMED_BYTES:
        return V_BAD_CURSOR
    record.version = start + RECORD_BYTES_MIN
    record.version_size = length
    record.stop = record.version + length
    record.evicting = False
    if record.stop > size:
        return V_TORN
    if checksum(data + start + 4, length + 2) != get_u32(data + start):
        return damaged(size, record.stop)
    if length > TOKEN_BYTES_MAX:
        record.version_size = data[record.version + TOKEN_BYTES_MAX]
        flags = data[record.version + TOKEN_BYTES_MAX + 1]
        record.evicting = flags & MEMO_EVICTING
        if record.version_size > TOKEN_BYTES_MAX:
            return V_BAD_MEMO
        if ((flags & MEMO_TIMED) != 0) != (length == MEMO_TIMED_BYTES):
            return V_BAD_MEMO
    return V_OK


cdef int unknown(const uint8_t* data, Py_ssize_t size, Py_ssize_t start) noexcept nogil:
    """Return the verdict for an unknown type: all zeros are allocated, unwritten space and so a
    torn tail; anything else is invalid."""
    cdef Py_ssize_t at
    for at in range(start, size):
        if data[at] != 0:
            return V_BAD_ZEROS if at >= start + 5 else V_BAD_TYPE
    return V_TORN


cdef inline int damaged(Py_ssize_t size, Py_ssize_t stop) noexcept nogil:
    """Return the verdict for a wrong checksum: torn only if no other record fits after it."""
    return V_DAMAGED if size - stop >= RECORD_BYTES_MIN else V_TORN


cdef str key_of(const uint8_t* data, Record* record):
    return PyUnicode_DecodeUTF8(<const char*>data + record.key, record.key_size, NULL)


def read_records(const uint8_t[::1] view, Py_ssize_t start, Py_ssize_t count_max):
    """Return up to `count_max` records as (kind, key, value, version, evicting), the offset after
    them, and a verdict."""
    cdef Py_ssize_t size = view.shape[0]
    cdef const uint8_t* data = &view[0] if size else NULL
    cdef Record record
    cdef int verdict = V_END
    cdef list found = []
    while start < size:
        if len(found) >= count_max:
            return found, start, FULL
        verdict = parse(data, size, start, &record)
        if verdict != V_OK:
            return found, start, verdict
        version = data[record.version:record.version + record.version_size]
        if record.kind == CURSOR:
            found.append((CURSOR, "", b"", version, bool(record.evicting)))
        else:
            value = data[record.value:record.value + record.value_size]
            found.append((record.kind, key_of(data, &record), value, version, False))
        start = record.stop
    return found, start, END


def replay_records(const uint8_t[::1] view, Py_ssize_t start, dict records):
    """Apply a file's records to an empty map.

    Returns the end offset, a verdict, the cursor, whether a cursor had the evicting flag, whether
    no record is redundant, and the size of a log of the entries alone.
    """
    cdef Py_ssize_t size = view.shape[0], live = 0, begun
    cdef const uint8_t* data = &view[0] if size else NULL
    cdef Record record
    cdef int verdict = V_END
    cdef bint evicting = False, is_compact = True
    cdef bytes cursor = b""
    cdef PyObject* old
    while start < size:
        verdict = parse(data, size, start, &record)
        if verdict != V_OK:
            return start, verdict, cursor, bool(evicting), False, live
        begun = start
        start = record.stop
        if record.kind == CURSOR:
            is_compact = is_compact and not cursor
            cursor = data[record.version:record.version + record.version_size]
            evicting = evicting or record.evicting
            continue
        name = key_of(data, &record)
        old = PyDict_GetItem(records, name)
        if old != NULL:
            live -= put_bytes(record.key_size, <object>old)
            is_compact = False
        if record.kind == PUT:
            live += record.stop - begun
            PyDict_SetItem(records, name, value_record(
                <const char*>data + record.version, record.version_size,
                <const char*>data + record.value, record.value_size))
        else:
            is_compact = False
            if old != NULL:
                PyDict_DelItem(records, name)
    return start, END, cursor, bool(evicting), bool(is_compact), live


def find_record(const uint8_t[::1] view, Py_ssize_t start, Py_ssize_t work_bytes_max):
    """Return the first offset at or after `start` of a whole record with a matching checksum.

    `NO_RECORD` if there is none; `TOO_COSTLY` if the search would compute checksums over more than
    `work_bytes_max` bytes.
    """
    cdef Py_ssize_t size = view.shape[0], at, work = 0
    cdef const uint8_t* data = &view[0] if size else NULL
    cdef Record record
    if start < 0:
        raise ValueError("a file has no bytes before its start")
    for at in range(start, size - RECORD_BYTES_MIN + 1):
        if data[at + 4] < PUT or data[at + 4] > CURSOR:
            continue
        record.stop = at
        if parse(data, size, at, &record) == V_OK:
            return at
        # `parse` sets `record.stop` before it computes a checksum over the whole record.
        if record.stop <= size:
            work += record.stop - at
        if work > work_bytes_max:
            return TOO_COSTLY
    return NO_RECORD
