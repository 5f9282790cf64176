"""Rewrites block images: keeps the live records of a block, and range records that still apply.

Pure: bytes in, bytes out, so it runs on any thread. Records are copied unchanged, since they do not
contain their position. A range record in the same image describes what is left out, so that a scan
without the footer finds every gap explained. An image with an invalid record is not rewritten.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcpy

from penstock.records.record_codec cimport (
    ERASED, MESSAGE, RANGE_BYTES, REMOVE, SKIP, Keys, RecordView, make_keys, put_range, read_record,
)
from penstock.store.index.block_index cimport Growing, more
from penstock.subjects.trie_nodes cimport xzalloc

from typing import NamedTuple

cdef enum:
    KINDS = 7                   # record kinds; 0 means none


class Rewritten(NamedTuple):
    """Header and records of a new image, the place of each sequence in it, and a record count."""

    image: bytes
    places: bytes
    records: int


cdef struct Span:
    int kind
    uint64_t first
    uint64_t last
    int64_t written_ns

cdef struct Writer:
    Growing out
    Keys keys
    uint32_t records
    Span open                   # a removal that the next one may extend
    Span latest[KINDS]          # of kinds where only the last record counts

cdef void write_span(Writer* writer, Span* span) noexcept nogil:
    put_range(more(&writer.out, RANGE_BYTES), &writer.keys, span.kind, span.first, span.last,
              span.written_ns)
    writer.records += 1

cdef void end_removal(Writer* writer) noexcept nogil:
    if writer.open.kind:
        write_span(writer, &writer.open)
        writer.open.kind = 0

cdef void removed(Writer* writer, uint64_t first, uint64_t last, int64_t written_ns) noexcept nogil:
    if writer.open.kind and writer.open.last + 1 == first:
        writer.open.last = last
        return
    end_removal(writer)
    writer.open = Span(REMOVE, first, last, written_ns)

cdef void keep_range(Writer* writer, RecordView* view, uint64_t first_seq,
                     uint64_t oldest_seq) noexcept nogil:
    """Keep the part of a range record that is about older blocks."""
    cdef uint64_t last = <uint64_t>view.ts
    cdef Span span = Span(view.kind, view.seq, last, view.written_ns)
    if view.kind == REMOVE:
        if view.seq < first_seq and last >= oldest_seq and view.seq <= last:
            removed(writer, view.seq, min(last, first_seq - 1), view.written_ns)
    elif view.kind == SKIP:
        end_removal(writer)
        write_span(writer, &span)
    else:
        writer.latest[view.kind] = span

cdef void explain_gaps(Writer* writer, const uint32_t* places, uint64_t span, uint64_t first_seq,
                       uint64_t last_seq, int64_t last_ts) noexcept nogil:
    """Write records for the sequences of this block that hold no message any more."""
    cdef uint64_t i, gap = 0
    cdef Span rest
    for i in range(span):
        if places[i] == 0:
            continue
        if i > gap:
            removed(writer, first_seq + gap, first_seq + i - 1, last_ts)
        gap = i + 1
    end_removal(writer)
    if first_seq + gap <= last_seq:
        # A SKIP, not a REMOVE: it records that the sequences were assigned, and the time.
        rest = Span(SKIP, first_seq + gap, last_seq, last_ts)
        write_span(writer, &rest)

cdef bint copy_records(Writer* writer, const char* image, size_t at, size_t end,
                       const char* live, uint32_t* places, uint64_t span, uint64_t first_seq,
                       uint64_t oldest_seq) noexcept nogil:
    """Copy messages in order, and keep range records; return False if a record is invalid."""
    cdef RecordView view
    cdef uint64_t i
    while at < end:
        if read_record(image + at, end - at, &writer.keys, &view, True) != 0:
            return False
        i = view.seq - first_seq
        if view.kind != MESSAGE:
            keep_range(writer, &view, first_seq, oldest_seq)
        elif (not view.flags & ERASED and view.seq >= first_seq and i < span and live[i]
                and places[i] == 0):
            places[i] = <uint32_t>writer.out.used
            memcpy(more(&writer.out, view.length), image + at, view.length)
            writer.records += 1
        at += view.length
    return True

def rewrite_image(bytes image not None, size_t head, bytes header not None, *,
                  uint64_t incarnation, uint64_t number, uint64_t first_seq, uint64_t last_seq,
                  int64_t last_ts_ns, uint64_t oldest_seq, uint64_t loss_floor,
                  uint64_t losses, bytes live not None) -> Rewritten | None:
    """Return the image without dead records, under a new header; None if a record is invalid.

    `live` has a byte per sequence; no block holds anything below `oldest_seq`. No removal in the
    old image above `loss_floor` was the newest message of its subject.
    """
    cdef Writer writer
    cdef bint sound
    cdef int kind
    cdef Span summary
    cdef uint64_t span = PyBytes_GET_SIZE(live)
    cdef const char* base = PyBytes_AS_STRING(image)
    cdef const char* wanted = PyBytes_AS_STRING(live)
    cdef size_t end = PyBytes_GET_SIZE(image)
    cdef uint32_t* places = <uint32_t*>xzalloc((span + 1) * sizeof(uint32_t))
    writer.out = Growing(NULL, 0, 0)
    writer.records = 0
    writer.open.kind = 0
    for kind in range(KINDS):
        writer.latest[kind].kind = 0
    make_keys(&writer.keys, incarnation, number)
    memcpy(more(&writer.out, PyBytes_GET_SIZE(header)), PyBytes_AS_STRING(header),
           PyBytes_GET_SIZE(header))
    with nogil:
        sound = copy_records(&writer, base, head, end, wanted, places, span, first_seq, oldest_seq)
        explain_gaps(&writer, places, span, first_seq, last_seq, last_ts_ns)
        for kind in range(KINDS):
            if writer.latest[kind].kind:
                write_span(&writer, &writer.latest[kind])
        summary = Span(REMOVE, loss_floor + 1 + losses, loss_floor, last_ts_ns)
        write_span(&writer, &summary)      # last, because it describes the records before it
    try:
        if not sound:
            return None
        return Rewritten(writer.out.data[:writer.out.used],
                         (<char*>places)[:span * sizeof(uint32_t)], writer.records)
    finally:
        free(writer.out.data)
        free(places)
