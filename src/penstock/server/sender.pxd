"""C surface of the sender: outboxes to sockets."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.outbox cimport Outbox
from penstock.broker.router cimport Router
from penstock.server.link cimport Link


cdef class Sender:
    cdef Router router
    cdef int epfd
    cdef list blocked             # links whose socket takes nothing
    cdef object arm               # arm(delay_s, call): call() then
    cdef object on_deadline       # to be called when write deadlines are to be looked at
    cdef int64_t write_deadline_ns
    cdef readonly uint64_t slow_consumers

    cdef int flush_dirty(self) except -1
    cdef int flush_urgent(self) except -1
    cdef int flush(self, Link link) except -1
    cdef int encode_pending(self, Link link) except -1
    cdef int drain(self, Link link, Outbox* out) except -1
    cdef int set_events(self, Link link, uint32_t events) except -1
    cdef int note_blocked(self, Link link) except -1
    cdef int await_deadline(self, Link link) except -1
    cdef int close_overdue(self) except -1
