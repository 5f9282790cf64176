"""C interface of a stream's fast lane."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.router cimport Lane, LaneListener, Message, Router
from penstock.store.append_commit cimport Appender
from penstock.store.index.record_log cimport RecordLog
from penstock.store.index.subject_index cimport Subject
from penstock.jetstream.streams.dedupe cimport DuplicateWindow
from penstock.jetstream.streams.batches.staged_batches cimport StagedBatches
from penstock.jetstream.streams.lanes.header_lines cimport Text
from penstock.subjects.trie cimport SubList


cdef struct Ack:
    uint64_t seq
    uint32_t offset       # of the reply subject, in `text`
    uint32_t length
    bint is_duplicate


@cython.final
cdef class StreamLane(Lane):
    cdef RecordLog log
    cdef Router router
    cdef dict deadlines           # of the store; the lane cannot remove these messages
    cdef set exempt
    cdef bytes prefix             # of every publish ack
    cdef bytes name               # of the stream, for `Nats-Expected-Stream`
    cdef DuplicateWindow ids      # of the stream; `Stream.plan` uses it too
    cdef StagedBatches batches       # of the stream; `Stream.plan` uses them too
    cdef SubList interest
    cdef Appender appender        # of the store; None: a stored message needs no sync
    cdef bint is_alone            # the stream host needs no immediate notice of what the lane takes
    cdef int64_t heard_ns         # when the host last called `take_results`
    cdef bint is_open
    cdef bint acks_wanted
    cdef bint discard_new
    cdef int64_t msgs_max
    cdef int64_t bytes_max
    cdef int64_t per_subject_max
    cdef size_t payload_max
    cdef public int64_t room      # bytes it may store before account and server limits are checked
    cdef readonly uint64_t taken  # messages since the last `take_results`
    cdef Ack* acks
    cdef uint32_t nacks
    cdef uint32_t acks_cap
    cdef uint32_t nreleased       # acks that may be sent
    cdef uint32_t ncommitting     # acks that the running sync covers
    cdef char* text
    cdef uint32_t text_len
    cdef uint32_t text_cap
    cdef list gone                # sequences that limits removed since the last `take_results`

    cdef bint stage(self, Message* msg) noexcept
    cdef bint meets_expectations(self, Message* msg, Text* msg_id) noexcept
    cdef bint meets_expectation(self, Message* msg, Text* key, Text* value) noexcept
    cdef uint64_t store(self, Message* msg, Text* msg_id, int64_t size) noexcept
    cdef void note_id(self, Text* msg_id, uint64_t seq, int64_t ts) noexcept
    cdef void acknowledge(self, uint64_t seq, Message* msg, bint is_duplicate) noexcept
    cdef void send_ack(self, uint64_t seq, const char* to, size_t to_len,
                       bint is_duplicate) noexcept
    cdef bint fits(self, Message* msg, int64_t size) noexcept
    cdef void enforce(self, Message* msg, int64_t ts) noexcept
    cdef void remove(self, uint64_t seq, int64_t ts) noexcept
    cdef void note_ack(self, uint64_t seq, Message* msg, bint is_duplicate) noexcept nogil
    cdef void drop_sent(self, uint32_t sent, uint32_t used) noexcept nogil
