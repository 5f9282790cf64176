"""Messages of a block image, or of an archive, as columns, for readers of many messages.

Both functions parse a piece of bytes, collect the position of each message, and copy once:
subjects, header blocks and payloads into runs of bytes with 32-bit offsets, sequences and times
into 64-bit numbers, in Arrow's layout. They create no Python object per message. The caller selects
the messages of an image with a map that has a byte for every sequence.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from penstock.records.record_codec cimport (
    ERASED, MESSAGE, Keys, RecordKeys, RecordView, find_record, read_record,
)

from typing import NamedTuple

cdef enum:
    ALIGNMENT = 8
    CUT_OFF = -1
    TOO_LONG = -2
    HEAD_NUMBERS = 5           # numbers at the start of an archive entry
    SHIFT_MAX = 63

cdef size_t RUN_BYTES_MAX = 0x7fffffff - 65536   # offsets of a run have 31 bits


class RecordColumns(NamedTuple):
    """Messages in order. `place` is where the next piece of the same bytes begins."""

    place: int
    rows: int
    seqs: bytes
    times: bytes
    subjects: bytes
    subject_offsets: bytes
    headers: bytes
    header_offsets: bytes
    payloads: bytes
    payload_offsets: bytes


cdef struct Span:
    uint64_t seq
    int64_t ts
    const char* subject
    const char* header
    const char* payload
    size_t subject_len
    size_t header_len
    size_t payload_len

cdef struct Spans:
    Span* rows
    size_t count
    size_t rows_max
    size_t size               # bytes collected so far
    size_t bytes_max

cdef inline bint is_full(const Spans* spans) noexcept nogil:
    return spans.count >= spans.rows_max or spans.size >= spans.bytes_max

cdef inline void note(Spans* spans, const Span* span) noexcept nogil:
    spans.rows[spans.count] = span[0]
    spans.count += 1
    spans.size += span.subject_len + span.header_len + span.payload_len

cdef int begin(Spans* spans, size_t rows_max, size_t bytes_max) except -1:
    if rows_max == 0:
        raise ValueError("no room for a row")
    spans.rows = <Span*>malloc(rows_max * sizeof(Span))
    if spans.rows == NULL:
        raise MemoryError
    spans.count = spans.size = 0
    spans.rows_max = rows_max
    spans.bytes_max = min(bytes_max, RUN_BYTES_MAX)
    return 0


# -- from spans to columns

cdef object numbers_of(const Spans* spans, bint is_seq):
    made = PyBytes_FromStringAndSize(NULL, 8 * spans.count)
    cdef int64_t* out = <int64_t*>PyBytes_AS_STRING(made)
    cdef size_t i
    for i in range(spans.count):
        out[i] = <int64_t>spans.rows[i].seq if is_seq else spans.rows[i].ts
    return made

cdef inline size_t part_of(const Span* span, int part, const char** at) noexcept nogil:
    if part == 0:
        at[0] = span.subject
        return span.subject_len
    if part == 1:
        at[0] = span.header
        return span.header_len
    at[0] = span.payload
    return span.payload_len

cdef tuple run_of(const Spans* spans, int part):
    """Return one part of every message, concatenated, and the offset of each."""
    cdef size_t i, n, total = 0
    cdef const char* at = NULL
    for i in range(spans.count):
        total += part_of(&spans.rows[i], part, &at)
    if total > 0x7fffffff:
        raise ValueError("messages are too long to lie in one run")
    data = PyBytes_FromStringAndSize(NULL, total)
    offsets = PyBytes_FromStringAndSize(NULL, 4 * (spans.count + 1))
    cdef char* out = PyBytes_AS_STRING(data)
    cdef int32_t* where = <int32_t*>PyBytes_AS_STRING(offsets)
    with nogil:
        total = 0
        for i in range(spans.count):
            where[i] = <int32_t>total
            n = part_of(&spans.rows[i], part, &at)
            memcpy(out + total, at, n)
            total += n
        where[spans.count] = <int32_t>total
    return data, offsets

cdef object columns_of(const Spans* spans, size_t place):
    return RecordColumns(
        place, spans.count, numbers_of(spans, True), numbers_of(spans, False),
        *run_of(spans, 0), *run_of(spans, 1), *run_of(spans, 2),
    )


# -- blocks

cdef inline bint is_wanted(const RecordView* view, const uint8_t* wanted, size_t n,
                           uint64_t first) noexcept nogil:
    return (view.kind == MESSAGE and not view.flags & ERASED and view.seq >= first
            and view.seq - first < n and wanted[view.seq - first])

cdef size_t note_records(const char* base, size_t at, size_t end, const Keys* keys,
                         const uint8_t* wanted, size_t n, uint64_t first,
                         Spans* spans) noexcept nogil:
    """Collect wanted valid messages up to `end` or until the spans are full; return the place."""
    cdef RecordView view
    cdef Span span
    while at < end and not is_full(spans):
        if read_record(base + at, end - at, keys, &view, True) != 0:
            at = find_record(base, at + ALIGNMENT, end, keys)
            continue
        at += view.length
        if is_wanted(&view, wanted, n, first):
            span = Span(view.seq, view.ts, view.subject, view.header, view.payload,
                        view.subject_len, view.header_len, view.payload_len)
            note(spans, &span)
    return at


def block_columns(RecordKeys keys not None, const uint8_t[::1] image not None, size_t start,
                  size_t end, const uint8_t[::1] wanted not None, uint64_t first_seq, *,
                  size_t rows_max, size_t bytes_max):
    """Return the valid messages of an image from `start` on whose sequence is wanted.

    `wanted` has a byte for every sequence from `first_seq` on. Invalid bytes are skipped.
    """
    cdef Spans spans
    cdef size_t place, stop = min(end, <size_t>image.shape[0])
    if start >= stop or wanted.shape[0] == 0:
        begin(&spans, 1, 1)
        place = stop
    else:
        begin(&spans, rows_max, bytes_max)
        with nogil:
            place = note_records(<const char*>&image[0], start, stop, &keys.keys, &wanted[0],
                                 wanted.shape[0], first_seq, &spans)
    try:
        return columns_of(&spans, place)
    finally:
        free(spans.rows)


# -- archives

cdef int read_number(const char* base, size_t* at, size_t end, uint64_t* value) noexcept nogil:
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while at[0] < end:
        byte = <uint8_t>base[at[0]]
        at[0] += 1
        if shift == SHIFT_MAX and byte > 1:
            return TOO_LONG
        value[0] |= <uint64_t>(byte & 127) << shift
        if byte < 128:
            return 0
        shift += 7
    return CUT_OFF

cdef int note_entry(const char* base, size_t* at, size_t end, size_t entry_bytes_max,
                    Spans* spans) noexcept nogil:
    """Collect one entry; return 1 if it is the end entry, which holds no message."""
    cdef uint64_t head[HEAD_NUMBERS]
    cdef size_t place = at[0]
    cdef Span span
    cdef int i, failed
    for i in range(HEAD_NUMBERS):
        failed = read_number(base, &place, end, &head[i])
        if failed:
            return failed
    if head[0] > entry_bytes_max or head[3] > entry_bytes_max or head[4] > entry_bytes_max:
        return TOO_LONG
    if end - place < head[0] + head[3] + head[4]:
        return CUT_OFF
    span.subject, span.subject_len = base + place, head[0]
    span.header, span.header_len = base + place + head[0], head[3]
    span.payload, span.payload_len = base + place + head[0] + head[3], head[4]
    span.ts = <int64_t>(head[1] >> 1) ^ -<int64_t>(head[1] & 1)
    span.seq = head[2]
    at[0] = place + head[0] + head[3] + head[4]
    if span.seq == 0 and span.subject_len == 0:
        return 1
    note(spans, &span)
    return 0


def entry_columns(const uint8_t[::1] data not None, size_t start, *, size_t rows_max,
                  size_t bytes_max, size_t entry_bytes_max):
    """Return the complete entries of an archive from `start` on, and whether the archive ended
    with them. Raises ValueError if the bytes are not entries."""
    cdef Spans spans
    cdef size_t at = start, end = data.shape[0]
    cdef int verdict = CUT_OFF
    begin(&spans, rows_max, bytes_max)
    try:
        with nogil:
            while at < end and not is_full(&spans):
                verdict = note_entry(<const char*>&data[0], &at, end, entry_bytes_max, &spans)
                if verdict:
                    break
        if verdict == TOO_LONG:
            raise ValueError("an entry is longer than any may be")
        return columns_of(&spans, at), verdict == 1
    finally:
        free(spans.rows)
