"""C declarations of InternalCalls: the internal subscribers of a turn."""

from libc.stdint cimport int64_t, uint32_t

from penstock.server.net.client_link cimport ClientLink
from penstock.server.net.socket_writer cimport SocketWriter
from penstock.server.net.turn_listener cimport TurnListener


cdef class InternalCalls(SocketWriter):
    cdef TurnListener listener    # None, or called after the internal subscribers of a turn
    cdef object on_rest           # called when calls are left for another turn
    cdef bint rest_armed          # `on_rest` is armed
    cdef list backlogged          # links not read because their calls are left
    cdef list deferred            # links whose received bytes wait for a later turn
    cdef object watch             # None, or the LoopWatch that records long operations
    cdef int64_t late_ns          # from this time on, subscribers with a queue should use it

    cdef int run_calls(self) except -1
    cdef int run_some(self, list calls, int64_t until) except -1
    cdef int leave(self, list calls) except -1
    cdef int arm_rest(self) except -1
    cdef int resume_backlogged(self) except -1
    cdef int listen(self, ClientLink link) except -1
