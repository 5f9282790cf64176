"""The records of an append log, and the map they are folded into, where it goes by the million.

Encodes updates and entries, reads records from a file's bytes, folds updates into a dict of value
records. The layout is told in `pgss`, which also says what a verdict means; the spec of this module
is the naive model in the tests. Nothing is changed by a call that raises. Every length is checked
against the end of the bytes before anything behind it is looked at.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.kv.types import Op

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

# What a reading ended with.
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
    V_FULL = 1
    V_TORN = 2
    V_DAMAGED = 3
    V_BAD_TYPE = 4
    V_BAD_ZEROS = 5
    V_BAD_VERSION = 6
    V_BAD_CURSOR = 7
    V_BAD_MEMO = 8
    PUT = 1
    DELETE = 2
    CURSOR = 3
    HEAD_BYTES = 7
    RECORD_BYTES_MIN = 6
    TOKEN_BYTES_MAX = 10
    REVISION_BYTES = 8
    MEMO_BYTES = 12
    MEMO_TIMED_BYTES = 20
    MEMO_EVICTING = 1
    MEMO_TIMED = 2
    KEY_BYTES_MAX = 65535
    VALUE_BYTES_MAX = 16777216
    PUT_OVERHEAD = 11
    BUFFER_BYTES_MIN = 65536

cdef object PUT_OP = Op.PUT

cdef struct Buffer:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t room

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

cdef struct Version:
    uint8_t size
    uint8_t raw[TOKEN_BYTES_MAX]

cdef struct Columns:
    Py_ssize_t count
    Py_ssize_t skipped
    const uint8_t* ops
    const int64_t* seqs
    const char* subjects
    const int32_t* subject_at
    const char* payloads
    const int32_t* payload_at


# -- CRC-32 as in zlib, eight bytes at a time

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


cdef inline uint32_t get_u32(const uint8_t* at) noexcept nogil:
    return at[0] | (<uint32_t>at[1] << 8) | (<uint32_t>at[2] << 16) | (<uint32_t>at[3] << 24)


cdef inline void put_u32(uint8_t* at, uint32_t number) noexcept nogil:
    at[0] = number & 0xFF
    at[1] = (number >> 8) & 0xFF
    at[2] = (number >> 16) & 0xFF
    at[3] = (number >> 24) & 0xFF


# -- values of updates

cdef int read_version(object update, Version* version) except -1:
    """The version of an update: its revision, or else its token."""
    cdef int overflow = 0
    cdef uint64_t revision
    cdef object number = update.revision
    cdef long long small = PyLong_AsLongLongAndOverflow(number, &overflow)
    cdef bytes token
    if overflow < 0 or (overflow == 0 and small < 0):
        token = update.token
        if len(token) > TOKEN_BYTES_MAX:
            raise ValueError(f"a token has at most {TOKEN_BYTES_MAX} bytes, not {len(token)}")
        version.size = <uint8_t>len(token)
        memcpy(version.raw, PyBytes_AS_STRING(token), version.size)
        return 0
    revision = <uint64_t>small if overflow == 0 else <uint64_t>number
    put_revision(version, revision)
    return 0


cdef inline void put_revision(Version* version, uint64_t revision) noexcept nogil:
    cdef int place
    version.size = REVISION_BYTES
    for place in range(REVISION_BYTES):
        version.raw[place] = (revision >> (8 * (REVISION_BYTES - 1 - place))) & 0xFF


cdef const char* read_key(object key, Py_ssize_t* size) except NULL:
    cdef const char* raw = PyUnicode_AsUTF8AndSize(key, size)
    if size[0] > KEY_BYTES_MAX:
        raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes, not {size[0]}")
    return raw


cdef inline bint is_put(object op) except -1:
    return op is PUT_OP or op == PUT


# -- columns: updates that were never made objects of

cdef int open_columns(object batch, Py_ssize_t skipped, bytes ops, Columns* columns) except -1:
    """Look into a batch, which outlives the look; its offsets were checked when it was made."""
    cdef Py_ssize_t at
    columns.count = batch.count
    columns.skipped = skipped
    if len(ops) != columns.count:
        raise ValueError("operations are not as many as the records")
    columns.ops = <const uint8_t*>PyBytes_AS_STRING(ops)
    columns.seqs = <const int64_t*>PyBytes_AS_STRING(batch.seqs)
    columns.subjects = PyBytes_AS_STRING(batch.subjects)
    columns.subject_at = <const int32_t*>PyBytes_AS_STRING(batch.subject_offsets)
    columns.payloads = PyBytes_AS_STRING(batch.payloads)
    columns.payload_at = <const int32_t*>PyBytes_AS_STRING(batch.payload_offsets)
    for at in range(columns.count):
        if not 0 <= key_size(columns, at) <= KEY_BYTES_MAX:
            raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes")
    return 0


cdef inline Py_ssize_t key_size(const Columns* columns, Py_ssize_t at) noexcept nogil:
    return columns.subject_at[at + 1] - columns.subject_at[at] - columns.skipped


cdef inline const char* key_at(const Columns* columns, Py_ssize_t at) noexcept nogil:
    return columns.subjects + columns.subject_at[at] + columns.skipped


cdef inline Py_ssize_t value_size(const Columns* columns, Py_ssize_t at) noexcept nogil:
    return columns.payload_at[at + 1] - columns.payload_at[at]


def encode_columns(batch, Py_ssize_t skipped, bytes ops not None):
    """As `encode_updates`, for the records of a bulk batch."""
    cdef Buffer buffer = Buffer(NULL, 0, 0)
    cdef Columns columns
    cdef Version version
    cdef Py_ssize_t at
    open_columns(batch, skipped, ops, &columns)
    try:
        for at in range(columns.count):
            put_revision(&version, <uint64_t>columns.seqs[at])
            if columns.ops[at] == PUT:
                add_put(
                    &buffer, key_at(&columns, at), key_size(&columns, at),
                    columns.payloads + columns.payload_at[at], value_size(&columns, at),
                    <const uint8_t*>&version, 1 + version.size
                )
            else:
                add_delete(&buffer, key_at(&columns, at), key_size(&columns, at), &version)
        return PyBytes_FromStringAndSize(<const char*>buffer.data, buffer.size)
    finally:
        free(buffer.data)


def fold_columns(
    dict records, batch, Py_ssize_t skipped, bytes ops not None, set added, set removed
):
    """As `fold_updates`, for the records of a bulk batch, whose subjects are UTF-8."""
    cdef Columns columns
    cdef Version version
    cdef Py_ssize_t at, size, change = 0
    cdef bytes record
    cdef PyObject* old
    open_columns(batch, skipped, ops, &columns)
    for at in range(columns.count):
        size = key_size(&columns, at)
        name = PyUnicode_DecodeUTF8(key_at(&columns, at), size, NULL)
        old = PyDict_GetItem(records, name)
        if old != NULL:
            change -= PUT_OVERHEAD + size + PyBytes_GET_SIZE(<object>old)
        if columns.ops[at] == PUT:
            put_revision(&version, <uint64_t>columns.seqs[at])
            record = joined(<const char*>&version, 1 + version.size,
                            columns.payloads + columns.payload_at[at], value_size(&columns, at))
            change += PUT_OVERHEAD + size + PyBytes_GET_SIZE(record)
            if old == NULL:
                added.add(name)
            PyDict_SetItem(records, name, record)
        elif old != NULL:
            removed.add(name)
            PyDict_DelItem(records, name)
    return change


# -- encoding

cdef uint8_t* grown(Buffer* buffer, Py_ssize_t more) except NULL:
    """Room for so many bytes more; they count as used."""
    cdef Py_ssize_t room = buffer.room
    cdef uint8_t* data
    if buffer.size + more > room:
        while buffer.size + more > room:
            room = room * 2 if room else BUFFER_BYTES_MIN
        data = <uint8_t*>realloc(buffer.data, room)
        if data == NULL:
            raise MemoryError
        buffer.data = data
        buffer.room = room
    buffer.size += more
    return buffer.data + buffer.size - more


cdef int add_put(
    Buffer* buffer, const char* key, Py_ssize_t key_size, const char* value,
    Py_ssize_t value_size, const uint8_t* version, Py_ssize_t version_size
) except -1:
    """`version` with its length before it."""
    if value_size > VALUE_BYTES_MAX:
        raise ValueError(f"a value has at most {VALUE_BYTES_MAX} bytes, not {value_size}")
    cdef Py_ssize_t size = PUT_OVERHEAD + key_size + value_size + version_size
    cdef uint8_t* start = grown(buffer, size)
    cdef uint8_t* at = start + 4
    at[0] = PUT
    at[1] = key_size & 0xFF
    at[2] = key_size >> 8
    memcpy(at + 3, key, key_size)
    at += 3 + key_size
    put_u32(at, <uint32_t>value_size)
    memcpy(at + 4, value, value_size)
    memcpy(at + 4 + value_size, version, version_size)
    put_u32(start, checksum(start + 4, size - 4))
    return 0


cdef int add_delete(
    Buffer* buffer, const char* key, Py_ssize_t key_size, const Version* version
) except -1:
    cdef Py_ssize_t size = HEAD_BYTES + key_size + 1 + version.size
    cdef uint8_t* start = grown(buffer, size)
    start[4] = DELETE
    start[5] = key_size & 0xFF
    start[6] = key_size >> 8
    memcpy(start + HEAD_BYTES, key, key_size)
    memcpy(start + HEAD_BYTES + key_size, version, 1 + version.size)
    put_u32(start, checksum(start + 4, size - 4))
    return 0


def encode_updates(batch):
    """The records of some updates, one behind the other."""
    cdef Buffer buffer = Buffer(NULL, 0, 0)
    cdef Version version
    cdef const char* key
    cdef Py_ssize_t size = 0
    cdef bytes value
    cdef object name
    try:
        for update in batch:
            name = update.key
            key = read_key(name, &size)
            read_version(update, &version)
            if is_put(update.op):
                value = update.value
                add_put(
                    &buffer, key, size, PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value),
                    <const uint8_t*>&version, 1 + version.size
                )
            else:
                add_delete(&buffer, key, size, &version)
        return PyBytes_FromStringAndSize(<const char*>buffer.data, buffer.size)
    finally:
        free(buffer.data)


def encode_entries(dict records, list keys):
    """Put records for these keys of a map of value records."""
    cdef Buffer buffer = Buffer(NULL, 0, 0)
    cdef const char* key
    cdef const char* raw
    cdef Py_ssize_t size = 0, head
    cdef bytes record
    try:
        for name in keys:
            key = read_key(name, &size)
            record = records[name]
            raw = PyBytes_AS_STRING(record)
            head = 1 + <uint8_t>raw[0]
            add_put(
                &buffer, key, size, raw + head, PyBytes_GET_SIZE(record) - head,
                <const uint8_t*>raw, head
            )
        return PyBytes_FromStringAndSize(<const char*>buffer.data, buffer.size)
    finally:
        free(buffer.data)


# -- folding

def fold_updates(dict records, batch, set added, set removed):
    """Fold updates into a map of value records, noting which keys came and went.

    Returns by how many bytes a log of the map's entries has grown.
    """
    cdef Py_ssize_t size = 0, change = 0
    cdef Version version
    cdef object name
    cdef bytes record, value
    cdef PyObject* old
    for update in batch:
        read_key(update.key, &size)
        read_version(update, &version)
    for update in batch:
        name = update.key
        read_key(name, &size)
        old = PyDict_GetItem(records, name)
        if old != NULL:
            change -= PUT_OVERHEAD + size + PyBytes_GET_SIZE(<object>old)
        if is_put(update.op):
            value = update.value
            read_version(update, &version)
            record = joined(<const char*>&version, 1 + version.size,
                            PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value))
            change += PUT_OVERHEAD + size + PyBytes_GET_SIZE(record)
            if old == NULL:
                added.add(name)
            PyDict_SetItem(records, name, record)
        elif old != NULL:
            removed.add(name)
            PyDict_DelItem(records, name)
    return change


cdef bytes joined(const char* first, Py_ssize_t size, const char* second, Py_ssize_t more):
    cdef bytes whole = PyBytes_FromStringAndSize(NULL, size + more)
    memcpy(PyBytes_AS_STRING(whole), first, size)
    memcpy(PyBytes_AS_STRING(whole) + size, second, more)
    return whole


# -- reading

cdef int parse(
    const uint8_t* data, Py_ssize_t size, Py_ssize_t start, Record* record
) noexcept nogil:
    """The record at `start`, or why there is none."""
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
    """Space that was allocated and never written is a torn tail; else nobody wrote this."""
    cdef Py_ssize_t at
    for at in range(start, size):
        if data[at] != 0:
            return V_BAD_ZEROS if at >= start + 5 else V_BAD_TYPE
    return V_TORN


cdef inline int damaged(Py_ssize_t size, Py_ssize_t stop) noexcept nogil:
    """A wrong checksum is a torn tail only where no other record fits behind it."""
    return V_DAMAGED if size - stop >= RECORD_BYTES_MIN else V_TORN


cdef str key_of(const uint8_t* data, Record* record):
    return PyUnicode_DecodeUTF8(<const char*>data + record.key, record.key_size, NULL)


def read_records(const uint8_t[::1] view, Py_ssize_t start, Py_ssize_t count_max):
    """Up to so many records as (kind, key, value, version, evicting), where they end, a verdict."""
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
    """Fold a file's records into an empty map: where it ends, a verdict, the cursor, its memo,
    whether every record counted, and how long a log of the entries alone is."""
    cdef Py_ssize_t size = view.shape[0], live = 0, begun
    cdef const uint8_t* data = &view[0] if size else NULL
    cdef Record record
    cdef int verdict = V_END
    cdef bint evicting = False, settled = True
    cdef bytes cursor = b""
    cdef PyObject* old
    while start < size:
        verdict = parse(data, size, start, &record)
        if verdict != V_OK:
            return start, verdict, cursor, bool(evicting), False, live
        begun = start
        start = record.stop
        if record.kind == CURSOR:
            settled = settled and not cursor
            cursor = data[record.version:record.version + record.version_size]
            evicting = evicting or record.evicting
            continue
        name = key_of(data, &record)
        old = PyDict_GetItem(records, name)
        if old != NULL:
            live -= PUT_OVERHEAD + record.key_size + PyBytes_GET_SIZE(<object>old)
            settled = False
        if record.kind == PUT:
            live += record.stop - begun
            PyDict_SetItem(records, name, joined(
                <const char*>data + record.version, record.version_size,
                <const char*>data + record.value, record.value_size))
        else:
            settled = False
            if old != NULL:
                PyDict_DelItem(records, name)
    return start, END, cursor, bool(evicting), bool(settled), live
