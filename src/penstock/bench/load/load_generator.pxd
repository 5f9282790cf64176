# Socket operations shared by the compiled loops of the load generator.

from penstock.bench.load.message_scan cimport ScanState

cdef enum Outcome:
    DONE = 0
    DEADLINE = 1
    LOST = 2
    REFUSED = 3


cdef long long now_ns() noexcept nogil
cdef Outcome await_ready(int fd, short events, long long deadline_ns) noexcept nogil
cdef Outcome send_all(
    int fd, const char* data, Py_ssize_t size, long long deadline_ns
) noexcept nogil
cdef int would_block() noexcept nogil
