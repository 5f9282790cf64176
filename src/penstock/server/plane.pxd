"""C surface of the plane: the sockets of all links and the turn that serves them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.router cimport Lane
from penstock.server.internal_calls cimport InternalCalls
from penstock.server.link cimport Link
from penstock.server.posix cimport epoll_event
from penstock.subjects.trie cimport SubList


cdef class Plane(InternalCalls):
    cdef char* buffer
    cdef dict links               # cid -> Link: what keeps a link alive
    cdef list doomed
    cdef list interests           # every SubList whose removed subscriptions must be reclaimed
    cdef list stalled             # publishers that are not read for a moment
    cdef object pace              # None, or who knows how quick the disk is
    cdef uint32_t turning
    cdef int events               # of this turn
    cdef uint32_t reads           # of the link that is being read
    cdef int64_t served_ns        # when the last turn began
    cdef int64_t answered_ns      # when it had said what it had to say
    cdef uint32_t sleeps          # turns to come that do not linger
    cdef uint32_t doubt           # how many they will be the next time
    cdef bint stall_publishers
    cdef readonly uint64_t in_msgs_closed
    cdef readonly uint64_t in_bytes_closed
    cdef readonly uint64_t out_msgs_closed
    cdef readonly uint64_t out_bytes_closed
    cdef readonly uint64_t stalled_clients

    cdef bint is_answer(self, epoll_event* events, int n, int64_t now) noexcept
    cdef int linger(self, epoll_event* events) except -2
    cdef int serve(self, epoll_event* events, int n, int64_t now) except -1
    cdef int readable(self, Link link) except -1
    cdef bint take_plain(self, Link link) except -1
    cdef int take_encoded(self, Link link) except -1
    cdef int codec_ended(self, Link link, end) except -1
    cdef int received(self, Link link, char* base, size_t n) except -1
    cdef int keep_rest(self, Link link, char* rest, size_t n) except -1
    cdef uint32_t reads_wanted(self, uint64_t written) noexcept
    cdef ssize_t receive(self, Link link, char* at, size_t room) except -2
    cdef int finish(self) except -1
    cdef bint is_stirred(self) noexcept
    cdef int settle_lanes(self) except -1
    cdef bint settles(self, Lane lane) except -1
    cpdef int post(self, SubList interest, str subject, bytes payload, str reply=*,
                   bytes header=*, str to=*) except -1
    cdef int hold_back(self, Link link) except -1
    cdef int bury(self, Link link) except -1
    cdef int forget(self, Link link) except -1
