"""Buffer encoded frames until the kernel accepts them: the sending half of a load connection.

Frames are appended whole, so a partly sent frame is completed before anything else. If the kernel's
buffer is full, the rest stays here, and the load loop continues to read meanwhile.
"""

from libc.string cimport memcpy

from penstock.bench.load.load_generator cimport DONE, LOST, Outcome, send_all, would_block

cdef extern from "<sys/socket.h>" nogil:
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL


cdef char* room_for(Outlet* outlet, Py_ssize_t size) noexcept nogil:
    if outlet.filled + size > OUTLET_BYTES:
        return NULL
    return outlet.room + outlet.filled


cdef Outcome send_some(Outlet* outlet) noexcept nogil:
    cdef ssize_t sent
    if outlet.filled == 0:
        return DONE
    sent = send(
        outlet.fd, outlet.room + outlet.sent, outlet.filled - outlet.sent,
        MSG_NOSIGNAL | MSG_DONTWAIT,
    )
    if sent < 0:
        return DONE if would_block() else LOST
    outlet.sent += sent
    if outlet.sent == outlet.filled:
        outlet.sent = 0
        outlet.filled = 0
    return DONE


cdef Outcome put(
    Outlet* outlet, const char* data, Py_ssize_t size, long long deadline_ns
) noexcept nogil:
    cdef Outcome outcome
    if outlet.filled + size > OUTLET_BYTES:
        outcome = drain(outlet, deadline_ns)
        if outcome != DONE:
            return outcome
    memcpy(outlet.room + outlet.filled, data, size)
    outlet.filled += size
    return DONE


cdef Outcome drain(Outlet* outlet, long long deadline_ns) noexcept nogil:
    cdef Outcome outcome = send_all(
        outlet.fd, outlet.room + outlet.sent, outlet.filled - outlet.sent, deadline_ns
    )
    outlet.sent = 0
    outlet.filled = 0
    return outcome
