"""C declarations of SocketReader: from sockets to links."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.server.net.internal_calls cimport InternalCalls
from penstock.server.net.client_link cimport ClientLink


cdef enum:
    READ_BYTES = 131072            # bytes of one read
    LARGE_FRAME_BYTES = 65536      # frames at least this large are read into their own buffer


cdef class SocketReader(InternalCalls):
    cdef char* buffer
    cdef int events               # ready sockets of this turn
    cdef uint32_t reads           # reads of the current link in this turn
    cdef list stalled             # (stalled publisher, its receiver, until when)
    cdef bint stall_publishers
    cdef readonly uint64_t stalled_clients

    cdef int readable(self, ClientLink link) except -1
    cdef int obey(self, ClientLink link, bint resumed) except -1
    cdef int resume(self, ClientLink link) except -1
    cdef int defer(self, ClientLink link) except -1
    cdef int continue_deferred(self) except -1
    cdef bint out_of_time(self) noexcept
    cdef bint take_plain(self, ClientLink link) except -1
    cdef int take_encoded(self, ClientLink link) except -1
    cdef bytes decode(self, ClientLink link, bytes data)
    cdef int obey_decoded(self, ClientLink link, bytes plain) except -1
    cdef int received(self, ClientLink link, char* base, size_t n) except -1
    cdef int keep_rest(self, ClientLink link, char* rest, size_t n) except -1
    cdef uint32_t reads_wanted(self, uint64_t written) noexcept
    cdef ssize_t receive(self, ClientLink link, char* at, size_t room) except -2
    cdef int hold_back(self, ClientLink link, ClientLink receiver) except -1
