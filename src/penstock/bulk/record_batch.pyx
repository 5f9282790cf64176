"""Immutable batch of stream records as columns.

Subjects, header blocks and payloads are one run of bytes each, with a 32-bit offset before every
record and one after the last; sequences and times are 64-bit numbers. Arrow uses these buffers
without conversion. `rows` returns the records as Python tuples.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.list cimport PyList_New, PyList_SET_ITEM
from cpython.ref cimport Py_INCREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t


cdef class Batch:
    """Columns of `count` records.

    `first` and `last` are sequences, 0 if there are no records. `pending` is the number of records
    the server had yet to deliver after the last one.
    """

    cdef readonly Py_ssize_t count
    cdef readonly int64_t pending
    cdef readonly bytes seqs
    cdef readonly bytes times
    cdef readonly bytes subjects
    cdef readonly bytes subject_offsets
    cdef readonly bytes headers
    cdef readonly bytes header_offsets
    cdef readonly bytes payloads
    cdef readonly bytes payload_offsets

    def __init__(
        self, Py_ssize_t count, int64_t pending, bytes seqs not None, bytes times not None,
        bytes subjects not None, bytes subject_offsets not None,
        bytes headers not None, bytes header_offsets not None,
        bytes payloads not None, bytes payload_offsets not None,
    ):
        if len(seqs) != 8 * count or len(times) != 8 * count:
            raise ValueError("sequences or times are not as many as the records")
        check_offsets(count, subjects, subject_offsets)
        check_offsets(count, headers, header_offsets)
        check_offsets(count, payloads, payload_offsets)
        self.count = count
        self.pending = pending
        self.seqs = seqs
        self.times = times
        self.subjects = subjects
        self.subject_offsets = subject_offsets
        self.headers = headers
        self.header_offsets = header_offsets
        self.payloads = payloads
        self.payload_offsets = payload_offsets

    def __len__(self):
        return self.count

    def __repr__(self):
        return f"Batch({self.count} records, {self.first}..{self.last}, {self.pending} pending)"

    @property
    def first(self):
        return (<const int64_t*> PyBytes_AS_STRING(self.seqs))[0] if self.count else 0

    @property
    def last(self):
        return (<const int64_t*> PyBytes_AS_STRING(self.seqs))[self.count - 1] if self.count else 0

    @property
    def byte_count(self):
        """Total size of subjects, headers and payloads in bytes."""
        return len(self.subjects) + len(self.headers) + len(self.payloads)

    def first_gap(self, int64_t frontier):
        """Return the sequence before the first missing one after `frontier`; -1 if none is
        missing."""
        cdef const int64_t* seqs = <const int64_t*> PyBytes_AS_STRING(self.seqs)
        cdef Py_ssize_t index
        for index in range(self.count):
            if seqs[index] > frontier + 1:
                return frontier
            frontier = seqs[index]
        return -1

    def rows(self):
        """Return the records as tuples: subject, sequence, time in ns, header block, payload."""
        cdef const int64_t* seqs = <const int64_t*> PyBytes_AS_STRING(self.seqs)
        cdef const int64_t* times = <const int64_t*> PyBytes_AS_STRING(self.times)
        cdef list rows = PyList_New(self.count)
        cdef Py_ssize_t index
        for index in range(self.count):
            row = (
                text_at(self.subjects, self.subject_offsets, index),
                seqs[index],
                times[index],
                bytes_at(self.headers, self.header_offsets, index),
                bytes_at(self.payloads, self.payload_offsets, index),
            )
            Py_INCREF(row)
            PyList_SET_ITEM(rows, index, row)
        return rows


cdef int check_offsets(Py_ssize_t count, bytes data, bytes offsets) except -1:
    """Raise unless offsets ascend from 0 to the end of the data, so that no read leaves the
    data."""
    cdef const int32_t* at = <const int32_t*> PyBytes_AS_STRING(offsets)
    cdef Py_ssize_t index
    if count < 0 or len(offsets) != 4 * (count + 1) or at[0] != 0 or at[count] != len(data):
        raise ValueError("offsets do not fit their data")
    for index in range(count):
        if at[index] > at[index + 1]:
            raise ValueError("offsets do not ascend")
    return 0


cdef inline object bytes_at(bytes data, bytes offsets, Py_ssize_t index):
    cdef const int32_t* at = <const int32_t*> PyBytes_AS_STRING(offsets) + index
    return PyBytes_FromStringAndSize(PyBytes_AS_STRING(data) + at[0], at[1] - at[0])


cdef inline object text_at(bytes data, bytes offsets, Py_ssize_t index):
    cdef const int32_t* at = <const int32_t*> PyBytes_AS_STRING(offsets) + index
    # A subject may hold any bytes; surrogateescape makes invalid UTF-8 reversible.
    return PyUnicode_DecodeUTF8(PyBytes_AS_STRING(data) + at[0], at[1] - at[0], "surrogateescape")
