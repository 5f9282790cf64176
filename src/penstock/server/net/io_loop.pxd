"""C declarations of IoLoop: the sockets of all links and the turn that serves them."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.router cimport Lane
from penstock.server.net.client_link cimport ClientLink
from penstock.server.net.posix cimport epoll_event
from penstock.server.net.socket_reader cimport SocketReader
from penstock.subjects.trie cimport SubList


@cython.final
cdef class IoLoop(SocketReader):
    cdef dict links               # cid -> ClientLink; keeps the links alive
    cdef list closing
    cdef list leaving             # closed links whose subscriptions are dropped in slices
    cdef int unserved             # index at which the next turn starts, if this one ran out of time
    cdef list interests           # every SubList whose removed subscriptions must be reclaimed
    cdef uint32_t turning
    cdef int64_t served_ns        # when the last turn began
    cdef int64_t answered_ns      # when the last turn had flushed its output
    cdef readonly uint64_t short_turns    # turns shorter than NOTED_NS
    cdef uint32_t sleeps          # number of next turns that do not linger
    cdef uint32_t linger_backoff  # from which the next value of `sleeps` is computed
    cdef readonly uint64_t in_msgs_closed
    cdef readonly uint64_t in_bytes_closed
    cdef readonly uint64_t out_msgs_closed
    cdef readonly uint64_t out_bytes_closed

    cdef bint is_answer(self, epoll_event* events, int n, int64_t now) noexcept
    cdef int linger(self, epoll_event* events) except -2
    cdef int serve(self, epoll_event* events, int n, int64_t now) except -1
    cdef int writable(self, ClientLink link) except -1
    cdef bint is_crowded(self) except -1
    cdef int finish(self) except -1
    cdef bint is_stirred(self) noexcept
    cdef int commit_lanes(self) except -1
    cdef bint settles(self, Lane lane) except -1
    cpdef int post(self, SubList interest, str subject, bytes payload, str reply=*,
                   bytes header=*, str to=*) except -1
    cdef int close_link(self, ClientLink link) except -1
    cdef int drop_leaving(self) except -1
