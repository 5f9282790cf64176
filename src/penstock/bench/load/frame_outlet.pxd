# Send buffer of one connection, for the compiled loops.

from penstock.bench.load.load_generator cimport Outcome

cdef enum:
    OUTLET_BYTES = 262144  # larger than any frame


cdef struct Outlet:
    int fd
    Py_ssize_t sent  # bytes of `filled` that are already sent
    Py_ssize_t filled
    char room[OUTLET_BYTES]


cdef inline bint is_empty(const Outlet* outlet) noexcept nogil:
    return outlet.filled == 0


# Returns where a frame of this size may be written, or NULL: send first. The caller then adds to
# `filled`.
cdef char* room_for(Outlet* outlet, Py_ssize_t size) noexcept nogil
# Sends what the kernel accepts now.
cdef Outcome send_some(Outlet* outlet) noexcept nogil
# Copies a frame in; sends first if there is no room.
cdef Outcome put(
    Outlet* outlet, const char* data, Py_ssize_t size, long long deadline_ns
) noexcept nogil
# Sends everything, waiting until the deadline.
cdef Outcome drain(Outlet* outlet, long long deadline_ns) noexcept nogil
