"""C declarations of SocketWriter: from outboxes to sockets."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.outbox cimport Outbox
from penstock.broker.router cimport Router, Sink, TurnState
from penstock.server.net.client_link cimport ClientLink


cdef enum Drained:
    SENT_ALL = 0
    SOCKET_FULL = 1
    SOCKET_BROKEN = 2
    SEND_MORE = 3                 # the socket may take more, but other links come first


cdef class SocketWriter:
    cdef Router router
    cdef TurnState state          # of the current turn, or of the last one
    cdef int epfd
    cdef list blocked             # links whose socket is full
    cdef object arm               # arm(delay_s, call) schedules call()
    cdef object on_deadline       # called when write deadlines must be checked
    cdef int64_t write_deadline_ns
    cdef object on_continue       # called when a slice of work was left for a later turn
    cdef bint continuing          # `on_continue` is armed
    cdef list unlisted            # closed links that the list of dirty sinks may still contain
    cdef Sink* heavy_first        # dirty sinks to flush after those with less to send
    cdef Sink* heavy_last
    cdef uint64_t sent_bytes
    cdef int64_t flush_until_ns   # when the turn's flushing ends; 0: the clock was not read yet
    cdef int64_t until_ns         # when the turn ends; the rest of its work is left for later
    cdef readonly uint64_t slow_consumers

    cdef int continue_later(self) except -1
    cdef int flush_dirty(self) except -1
    cdef Sink* take_dirty(self) noexcept
    cdef Sink* take_heavy(self) noexcept
    cdef int flush_listed(self, Sink* sink) except -1
    cdef int forget_unlisted(self) except -1
    cdef void forget_urgent(self) noexcept
    cdef int flush_urgent(self) except -1
    cdef int flush(self, ClientLink link) except -1
    cdef int encode_pending(self, ClientLink link) except -1
    cdef int drain(self, ClientLink link, Outbox* out) except -1
    cdef int set_events(self, ClientLink link, uint32_t events) except -1
    cdef int note_blocked(self, ClientLink link) except -1
    cdef int await_deadline(self, ClientLink link) except -1
    cdef int close_overdue(self) except -1
