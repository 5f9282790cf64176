"""The last update of each key of a batch in columns, in byte order of the keys; hot path.

The stores with a tree visit each page once if a batch is in key order. `SortedColumns` sorts
pointers into the columns, and its iterators create only the objects that a store passes to its
engine, one row at a time. The columns stay unchanged and are kept alive. The specification is the
naive model in the tests.
"""

from cpython.bytearray cimport PyByteArray_FromStringAndSize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memcmp

from penstock.fold.store.log_record cimport KEY_BYTES_MAX, PUT, value_record

cdef enum:
    REVISION_BYTES = 8

cdef double SECOND_NS = 1e9

cdef struct Columns:
    const uint8_t* ops
    const int64_t* seqs
    const int64_t* times
    const char* subjects
    const int32_t* subject_at
    const char* payloads
    const int32_t* payload_at

cdef struct Item:
    const char* key
    int32_t key_size
    int32_t piece
    int32_t at


cdef int compare(const void* left, const void* right) noexcept nogil:
    """Order by key, then by position in the batch."""
    cdef const Item* one = <const Item*>left
    cdef const Item* other = <const Item*>right
    cdef int32_t size = one.key_size if one.key_size < other.key_size else other.key_size
    cdef int order = memcmp(one.key, other.key, size)
    if order:
        return order
    if one.key_size != other.key_size:
        return -1 if one.key_size < other.key_size else 1
    if one.piece != other.piece:
        return -1 if one.piece < other.piece else 1
    return -1 if one.at < other.at else 1


cdef inline const char* value_at(const Columns* columns, const Item* item) noexcept nogil:
    return columns.payloads + columns.payload_at[item.at]


cdef inline Py_ssize_t value_size(const Columns* columns, const Item* item) noexcept nogil:
    return columns.payload_at[item.at + 1] - columns.payload_at[item.at]


cdef class SortedColumns:
    """Sorted puts and deletes of some `Updates`."""

    cdef list pieces
    cdef Columns* columns
    cdef Item* items
    cdef Py_ssize_t count
    cdef readonly Py_ssize_t key_bytes_min
    cdef readonly Py_ssize_t key_bytes_max

    def __cinit__(self, list pieces not None):
        cdef Py_ssize_t total = 0
        for piece in pieces:
            total += len(piece)
        self.pieces = pieces
        self.columns = <Columns*>malloc(max(1, len(pieces)) * sizeof(Columns))
        self.items = <Item*>malloc(max(1, total) * sizeof(Item))
        if self.columns == NULL or self.items == NULL:
            raise MemoryError
        self.key_bytes_min = KEY_BYTES_MAX
        self._gather()
        with nogil:
            qsort(self.items, self.count, sizeof(Item), compare)
            self._keep_last()

    def __dealloc__(self):
        free(self.columns)
        free(self.items)

    def __len__(self):
        return self.count

    cdef int _gather(self) except -1:
        cdef Py_ssize_t number, at, size, count
        cdef Columns* columns
        cdef Item* item = self.items
        cdef bytes ops
        for number in range(len(self.pieces)):
            piece = self.pieces[number]
            columns = &self.columns[number]
            count = self._open(piece, columns)
            for at in range(count):
                size = columns.subject_at[at + 1] - columns.subject_at[at] - piece.skipped
                if not 0 <= size <= KEY_BYTES_MAX:
                    raise ValueError(f"a key has at most {KEY_BYTES_MAX} bytes")
                self.key_bytes_min = min(self.key_bytes_min, size)
                self.key_bytes_max = max(self.key_bytes_max, size)
                item.key = columns.subjects + columns.subject_at[at] + <Py_ssize_t>piece.skipped
                item.key_size = <int32_t>size
                item.piece = <int32_t>number
                item.at = <int32_t>at
                item += 1
        self.count = item - self.items
        return 0

    cdef Py_ssize_t _open(self, piece, Columns* columns) except -1:
        """Set pointers into a piece, which `pieces` keeps alive; its batch has validated them."""
        batch = piece.batch
        columns.ops = <const uint8_t*>PyBytes_AS_STRING(piece.ops)
        columns.seqs = <const int64_t*>PyBytes_AS_STRING(batch.seqs)
        columns.times = <const int64_t*>PyBytes_AS_STRING(batch.times)
        columns.subjects = PyBytes_AS_STRING(batch.subjects)
        columns.subject_at = <const int32_t*>PyBytes_AS_STRING(batch.subject_offsets)
        columns.payloads = PyBytes_AS_STRING(batch.payloads)
        columns.payload_at = <const int32_t*>PyBytes_AS_STRING(batch.payload_offsets)
        return batch.count

    cdef void _keep_last(self) noexcept nogil:
        """Drop all but the last of equal keys, which are neighbours."""
        cdef Py_ssize_t at, kept = 0
        cdef Item* item
        cdef Item* last
        for at in range(self.count):
            item = &self.items[at]
            if kept:
                last = &self.items[kept - 1]
                if last.key_size == item.key_size and not memcmp(last.key, item.key, item.key_size):
                    kept -= 1
            self.items[kept] = item[0]
            kept += 1
        self.count = kept

    cdef inline bint is_put(self, Py_ssize_t at) noexcept nogil:
        return self.columns[self.items[at].piece].ops[self.items[at].at] == PUT

    cdef Item* next_put(self, Py_ssize_t* at) noexcept nogil:
        """Return the next put from `at` on, and move `at` past it; NULL at the end."""
        while at[0] < self.count:
            at[0] += 1
            if self.is_put(at[0] - 1):
                return &self.items[at[0] - 1]
        return NULL

    def deletes(self):
        """Return the keys that end deleted."""
        cdef Py_ssize_t at
        cdef Item* item
        cdef list found = []
        for at in range(self.count):
            if not self.is_put(at):
                item = &self.items[at]
                found.append(PyBytes_FromStringAndSize(item.key, item.key_size))
        return found

    def rows(self):
        """Return an iterator of (key, revision, value, server time in seconds) of each put."""
        return PutRows(self)

    def records(self):
        """Return an iterator of (key, value record) of each put."""
        return PutRecords(self)


cdef class PutRows:
    """Yields puts for SQLite: keys and values as bytearrays, which sqlite3 binds directly, while
    for bytes it first looks for an adapter."""

    cdef SortedColumns of
    cdef Py_ssize_t at

    def __cinit__(self, SortedColumns of not None):
        self.of = of

    def __iter__(self):
        return self

    def __next__(self):
        cdef Item* item = self.of.next_put(&self.at)
        if item == NULL:
            raise StopIteration
        cdef Columns* columns = &self.of.columns[item.piece]
        return (
            PyByteArray_FromStringAndSize(item.key, item.key_size),
            columns.seqs[item.at],
            PyByteArray_FromStringAndSize(value_at(columns, item), value_size(columns, item)),
            columns.times[item.at] / SECOND_NS,
        )


cdef class PutRecords:
    """Yields puts as pairs of bytes."""

    cdef SortedColumns of
    cdef Py_ssize_t at

    def __cinit__(self, SortedColumns of not None):
        self.of = of

    def __iter__(self):
        return self

    def __next__(self):
        cdef Item* item = self.of.next_put(&self.at)
        if item == NULL:
            raise StopIteration
        cdef Columns* columns = &self.of.columns[item.piece]
        cdef uint8_t version[1 + REVISION_BYTES]
        cdef int place
        version[0] = REVISION_BYTES
        for place in range(REVISION_BYTES):
            version[1 + place] = (columns.seqs[item.at] >> (8 * (REVISION_BYTES - 1 - place))) & 0xFF
        return (
            PyBytes_FromStringAndSize(item.key, item.key_size),
            value_record(
                <const char*>version, 1 + REVISION_BYTES,
                value_at(columns, item), value_size(columns, item),
            ),
        )
