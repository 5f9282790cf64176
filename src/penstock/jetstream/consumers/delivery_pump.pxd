"""C interface of the delivery pump."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.router cimport Router
from penstock.records.record_codec cimport RecordView
from penstock.store.index.message_log cimport MessageLog
from penstock.subjects.trie cimport SubList


cdef enum:
    SIZE_MARK_MAX = 48    # the size header line and the end of the header


cdef struct Taker:
    const char* to
    size_t to_len
    uint64_t left         # messages it may still get
    uint64_t given
    int64_t bytes_left    # bytes it may still get; 0 if it has no byte limit

cdef struct Span:
    uint64_t first
    uint64_t last

cdef struct Body:
    const char* head
    size_t head_len
    size_t mark_len       # sent after the head
    size_t header_len     # of head and mark together
    char mark[SIZE_MARK_MAX]

cdef struct Scratch:
    char* data
    char* small           # `data` as long as that is large enough
    size_t cap


@cython.final
cdef class Pump:
    cdef MessageLog log
    cdef Router router
    cdef SubList interest
    cdef bytes prefix             # of every ack subject, up to the stream sequence
    cdef tuple filters
    cdef bytes literal            # the one subject to deliver
    cdef SubList wanted           # or the patterns, if that is not enough
    cdef bint are_many            # or too many: the log's index finds matches
    cdef bint headers_only
    # state of the current run
    cdef uint64_t* memo
    cdef const uint64_t* row      # sequences to deliver, instead of all that follow `start`
    cdef size_t row_left
    cdef Taker* takers
    cdef uint32_t ntakers
    cdef uint32_t turn            # index of the next taker
    cdef Span* spans
    cdef uint32_t nspans
    cdef uint32_t spans_cap
    cdef bint spans_kept
    cdef uint64_t consumer_seq
    cdef int64_t num_undelivered
    cdef uint64_t counted_to
    cdef uint64_t sent
    cdef uint64_t last_seq
    cdef int64_t size
    cdef int64_t flow
    cdef int64_t last_flow

    cdef int send_all(self, uint64_t start, uint64_t msgs_max, int64_t size_max, int64_t flow_max,
                      bint in_turns, Scratch* scratch) noexcept
    cdef int pick(self, uint64_t* seq, RecordView* view) noexcept
    cdef bint fits(self, const RecordView* view, const Taker* taker) noexcept
    cdef void skip_full_takers(self) noexcept nogil
    cdef uint64_t following(self, uint64_t start) noexcept
    cdef uint64_t search(self, uint64_t start) noexcept
    cdef bint is_wanted(self, uint32_t subject) noexcept
    cdef int find(self, uint64_t seq, RecordView* view) noexcept
    cdef void send(self, RecordView* view, Taker* taker, Scratch* scratch) noexcept
    cdef void fill(self, RecordView* view, Body* body) noexcept nogil
    cdef void note(self, RecordView* view, Taker* taker, size_t reply_len, size_t body_len) noexcept
