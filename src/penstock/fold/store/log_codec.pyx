"""Encodes updates as append-log records and applies them to a map of value records; hot path.

`log_scan` reads the records back. `pgss` defines the layout; the reference is the naive model in
the tests. `pgss` calls the encoders, `FoldMap` the fold functions. The fold functions check keys
and versions before they change the map.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_DelItem, PyDict_GetItem, PyDict_SetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

from penstock.fold.store.log_record cimport (
    DELETE, HEAD_BYTES, KEY_BYTES_MAX, PUT, PUT_OVERHEAD, TOKEN_BYTES_MAX, VALUE_BYTES_MAX,
    checksum, put_bytes, put_u32, value_record,
)

from penstock.kv.kv_types import Op

cdef extern from "Python.h":
    const char* PyUnicode_AsUTF8AndSize(object text, Py_ssize_t* size) except NULL
    long long PyLong_AsLongLongAndOverflow(object number, int* overflow) except? -1

cdef enum:
    REVISION_BYTES = 8
    BUFFER_BYTES_MIN = 65536

cdef object PUT_OP = Op.PUT

cdef struct Buffer:
    uint8_t* data
    Py_ssize_t size
    Py_ssize_t room

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


# -- values of updates

cdef int read_version(object update, Version* version) except -1:
    """Read the version of an update: its revision or, if negative, its token."""
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


# -- columns: updates without an object per record

cdef int open_columns(object batch, Py_ssize_t skipped, bytes ops, Columns* columns) except -1:
    """Set pointers into a batch, which must outlive them; the batch has validated its offsets."""
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


# -- encoding

cdef uint8_t* grown(Buffer* buffer, Py_ssize_t more) except NULL:
    """Extend the used size by `more` bytes and return a pointer to them."""
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
    """Append a put record; `version` starts with its length byte."""
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
    """Return the concatenated records of the updates."""
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
    """Return put records for these keys of a map of value records."""
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


def encode_columns(batch, Py_ssize_t skipped, bytes ops not None):
    """Return the concatenated records of a bulk batch, like `encode_updates`."""
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


# -- folding

cdef Py_ssize_t keep(
    dict records, object name, Py_ssize_t size, bytes record, set added
) except? -1:
    """Set the value of a key; return the growth in bytes of a log of the entries."""
    cdef PyObject* old = PyDict_GetItem(records, name)
    cdef Py_ssize_t change = put_bytes(size, record)
    if old == NULL:
        added.add(name)
    else:
        change -= put_bytes(size, <object>old)
    PyDict_SetItem(records, name, record)
    return change


cdef Py_ssize_t drop(dict records, object name, Py_ssize_t size, set removed) except? -1:
    """Remove the value of a key; return the growth in bytes, like `keep`."""
    cdef PyObject* old = PyDict_GetItem(records, name)
    cdef Py_ssize_t change
    if old == NULL:
        return 0
    change = -put_bytes(size, <object>old)
    removed.add(name)
    PyDict_DelItem(records, name)
    return change


def fold_updates(dict records, batch, set added, set removed):
    """Apply updates to a map of value records, and record added and removed keys.

    Returns the growth in bytes of a log of the map's entries.
    """
    cdef Py_ssize_t size = 0, change = 0
    cdef Version version
    cdef object name
    cdef bytes value
    for update in batch:
        read_key(update.key, &size)
        read_version(update, &version)
    for update in batch:
        name = update.key
        read_key(name, &size)
        if is_put(update.op):
            value = update.value
            read_version(update, &version)
            change += keep(records, name, size, value_record(
                <const char*>&version, 1 + version.size,
                PyBytes_AS_STRING(value), PyBytes_GET_SIZE(value)), added)
        else:
            change += drop(records, name, size, removed)
    return change


def fold_columns(
    dict records, batch, Py_ssize_t skipped, bytes ops not None, set added, set removed
):
    """Apply the records of a bulk batch, like `fold_updates`; its subjects must be UTF-8."""
    cdef Columns columns
    cdef Version version
    cdef Py_ssize_t at, size, change = 0
    cdef object name
    open_columns(batch, skipped, ops, &columns)
    for at in range(columns.count):
        size = key_size(&columns, at)
        name = PyUnicode_DecodeUTF8(key_at(&columns, at), size, NULL)
        if columns.ops[at] == PUT:
            put_revision(&version, <uint64_t>columns.seqs[at])
            change += keep(records, name, size, value_record(
                <const char*>&version, 1 + version.size,
                columns.payloads + columns.payload_at[at], value_size(&columns, at)), added)
        else:
            change += drop(records, name, size, removed)
    return change
