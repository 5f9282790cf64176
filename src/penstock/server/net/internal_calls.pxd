"""C surface of the internal subscribers."""

from libc.stdint cimport int64_t, uint32_t

from penstock.server.net.client_link cimport ClientLink
from penstock.server.net.socket_writer cimport SocketWriter


cdef class InternalCalls(SocketWriter):
    cdef object epilogue          # None, or what runs after the internal subscribers of a turn
    cdef object on_rest           # to be called when calls are left for another turn
    cdef bint rest_armed          # it will be
    cdef list backlogged          # links that are not read because calls of theirs are left
    cdef list deferred            # links whose received bytes are obeyed in a later turn
    cdef object watch             # None, or who is told what held the loop
    cdef int64_t late_ns          # from when on a turn leaves requests to later ones

    cdef int run_calls(self) except -1
    cdef int run_some(self, list calls, int64_t until) except -1
    cdef int leave(self, list calls) except -1
    cdef int arm_rest(self) except -1
    cdef int resume_backlogged(self) except -1
    cdef int listen(self, ClientLink link) except -1
