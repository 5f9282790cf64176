"""C interface of the direct-get lane."""

cimport cython
from libc.stdint cimport int64_t, uint64_t

from penstock.broker.router cimport Lane, LaneListener, Message, Router
from penstock.records.record_codec cimport RecordView
from penstock.store.index.message_log cimport MessageLog
from penstock.subjects.trie cimport SubList


cdef class GetSource:
    cdef MessageLog log
    cdef bytes origin             # header lines up to the subject


@cython.final
cdef class GetLane(Lane):
    cdef Router router
    cdef SubList interest
    cdef dict sources             # stream name -> GetSource
    cdef bytes latest_name        # the stream of the last read; most reads repeat it
    cdef GetSource latest
    cdef int64_t second           # the second that `second_text` shows
    cdef char second_text[19]
    cdef char* answer             # buffer for one reply, reused by the next
    cdef size_t answer_cap

    cdef GetSource source_of(self, const char* name, size_t n)
    cdef int find(self, GetSource source, const char* subject, size_t n,
                  RecordView* view) noexcept nogil
    cdef void send(self, Message* request, GetSource source, RecordView* view) noexcept
    cdef void send_status(self, Message* request) noexcept
    cdef char* room(self, size_t n) noexcept nogil
    cdef char* put_time(self, char* at, int64_t ts) noexcept nogil
