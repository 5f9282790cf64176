"""The compiled loops of the load generator: publish as fast as the server reads, count messages.

Each function takes the descriptor of a connection after its handshake, runs without the interpreter
lock (one Python thread per role) and ends by success, error or deadline; none can hang. Publishers
repeatedly send slices of one encoded batch, so that the generator costs little more than the
kernel's copy. This module opens and closes no connection.
"""

from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdlib cimport free, malloc
from libc.string cimport strerror
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from penstock.bench.bench_error import BenchError

from penstock.bench.load.message_scan cimport MessageScanner, ScanState, scan

cdef extern from "<poll.h>" nogil:
    struct pollfd:
        int fd
        short events
        short revents

    int poll(pollfd* fds, unsigned long count, int timeout_ms)
    short POLLIN
    short POLLOUT

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    ssize_t send(int fd, const void* data, size_t size, int flags)
    int MSG_DONTWAIT
    int MSG_NOSIGNAL

cdef extern from *:
    """
    #define tally_add(place, count) __atomic_add_fetch((place), (count), __ATOMIC_RELAXED)
    #define tally_load(place) __atomic_load_n((place), __ATOMIC_RELAXED)
    """
    long long tally_add(long long* place, long long count) nogil
    long long tally_load(long long* place) nogil

cdef enum:
    WRITE_BYTES_MAX = 262144
    READ_BYTES_MAX = 262144
    RECV_BYTES_MAX = 4096
    POLL_MS_MAX = 20  # maximum delay until a full tally or a deadline is noticed


cdef class Tally:
    """Counts the messages of one receiver or of a queue group, up to the expected number."""

    cdef long long seen
    cdef readonly long long expected

    def __cinit__(self, long long expected):
        self.expected = expected

    @property
    def count(self):
        return tally_load(&self.seen)


def monotonic_ns():
    """Return the clock of all deadlines and times of this module."""
    return now_ns()


def publish(
    int fd,
    MessageScanner scanner not None,
    const unsigned char[::1] batch not None,
    long long total_bytes,
    long long deadline_ns,
):
    """Send `total_bytes` of the repeated batch, then wait until the server has processed all.

    Returns (start_ns, end_ns); the end is the arrival of the PONG after the last frame.
    """
    cdef long long start_ns = now_ns()
    cdef long long end_ns
    cdef Outcome outcome
    cdef const char* data = <const char*> &batch[0]
    cdef Py_ssize_t size = batch.shape[0]
    with nogil:
        outcome = send_cycled(fd, &scanner.state, data, size, total_bytes, deadline_ns)
        if outcome == DONE:
            outcome = ping_pong(fd, &scanner.state, deadline_ns)
        end_ns = now_ns()
    if outcome != DONE:
        raise failure(outcome, &scanner.state, "publisher")
    return start_ns, end_ns


def collect(int fd, MessageScanner scanner not None, Tally tally not None, long long deadline_ns):
    """Count messages until the tally is full.

    Returns (start_ns, end_ns); the end is the time at which this receiver got its last message.
    """
    cdef long long start_ns = now_ns()
    cdef long long last_ns = start_ns
    cdef Outcome outcome
    cdef char* room = <char*> malloc(READ_BYTES_MAX)
    if room == NULL:
        raise MemoryError
    with nogil:
        outcome = receive(fd, &scanner.state, tally, room, &last_ns, deadline_ns)
    free(room)
    if outcome != DONE:
        raise failure(outcome, &scanner.state, "subscriber")
    return start_ns, last_ns


def flush(int fd, MessageScanner scanner not None, long long deadline_ns):
    """Send PING and wait for the PONG, counting messages that arrive before it."""
    cdef Outcome outcome
    with nogil:
        outcome = ping_pong(fd, &scanner.state, deadline_ns)
    if outcome != DONE:
        raise failure(outcome, &scanner.state, "client")


cdef object failure(Outcome outcome, ScanState* state, str role):
    seen = f"after {state.messages} messages received" if state.messages else "at once"
    if outcome == REFUSED or state.error[0] != 0:
        return BenchError(f"{role}: {state.error.decode('utf-8', 'replace')}")
    if outcome == DEADLINE:
        return BenchError(f"{role}: not finished in time ({state.messages} messages received)")
    reason = strerror(errno).decode() if errno else "closed by the server"
    return BenchError(f"{role}: connection lost {seen}: {reason}")


cdef long long now_ns() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <long long> now.tv_sec * 1000000000 + now.tv_nsec


cdef Outcome await_ready(int fd, short events, long long deadline_ns) noexcept nogil:
    """Wait once, for a bounded time; DONE means only that the caller may try again."""
    cdef pollfd entry
    if now_ns() >= deadline_ns:
        return DEADLINE
    entry.fd = fd
    entry.events = events
    entry.revents = 0
    poll(&entry, 1, POLL_MS_MAX)
    return DONE


cdef int would_block() noexcept nogil:
    return errno == EAGAIN or errno == EINTR


cdef Outcome send_cycled(
    int fd,
    ScanState* state,
    const char* batch,
    Py_ssize_t batch_bytes,
    long long left,
    long long deadline_ns,
) noexcept nogil:
    cdef Py_ssize_t offset = 0
    cdef ssize_t sent
    cdef long long step
    cdef Outcome outcome
    while left > 0:
        step = min(left, <long long> min(batch_bytes - offset, <Py_ssize_t> WRITE_BYTES_MAX))
        sent = send(fd, batch + offset, step, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent > 0:
            left -= sent
            offset += sent
            if offset == batch_bytes:
                offset = 0
            continue
        if not would_block():
            read_input(fd, state)  # records the -ERR that a server sends before it closes
            return LOST
        outcome = await_ready(fd, POLLIN | POLLOUT, deadline_ns)
        if outcome == DONE:
            outcome = read_input(fd, state)
        if outcome != DONE:
            return outcome
    return DONE


cdef Outcome read_input(int fd, ScanState* state) noexcept nogil:
    """Scan the available bytes without waiting for more."""
    cdef char room[RECV_BYTES_MAX]
    cdef ssize_t got = recv(fd, room, RECV_BYTES_MAX, MSG_DONTWAIT)
    if got < 0:
        return DONE if would_block() else LOST
    if got == 0:
        errno = 0
        return LOST
    return DONE if scan(state, room, got) else REFUSED


cdef Outcome ping_pong(int fd, ScanState* state, long long deadline_ns) noexcept nogil:
    cdef long long wanted = state.pongs + 1
    # A publisher cannot send a PONG in the middle of a frame, so it sends the pending ones here.
    cdef Outcome outcome = answer_pings(fd, state, deadline_ns)
    if outcome == DONE:
        outcome = send_all(fd, b"PING\r\n", 6, deadline_ns)
    while outcome == DONE and state.pongs < wanted:
        outcome = await_ready(fd, POLLIN, deadline_ns)
        if outcome == DONE:
            outcome = read_input(fd, state)
    return outcome


cdef Outcome answer_pings(int fd, ScanState* state, long long deadline_ns) noexcept nogil:
    cdef Outcome outcome
    while state.pings_answered < state.pings:
        outcome = send_all(fd, b"PONG\r\n", 6, deadline_ns)
        if outcome != DONE:
            return outcome
        state.pings_answered += 1
    return DONE


cdef Outcome send_all(
    int fd, const char* data, Py_ssize_t size, long long deadline_ns
) noexcept nogil:
    cdef ssize_t sent
    while size > 0:
        sent = send(fd, data, size, MSG_NOSIGNAL | MSG_DONTWAIT)
        if sent > 0:
            data += sent
            size -= sent
            continue
        if not would_block():
            return LOST
        if await_ready(fd, POLLOUT, deadline_ns) != DONE:
            return DEADLINE
    return DONE


cdef Outcome receive(
    int fd,
    ScanState* state,
    Tally tally,
    char* room,
    long long* last_ns,
    long long deadline_ns,
) noexcept nogil:
    cdef ssize_t got
    cdef long long before
    cdef Outcome outcome
    while tally_load(&tally.seen) < tally.expected:
        got = recv(fd, room, READ_BYTES_MAX, MSG_DONTWAIT)
        if got == 0:
            errno = 0
            return LOST
        if got < 0:
            if not would_block():
                return LOST
            outcome = await_ready(fd, POLLIN, deadline_ns)
            if outcome != DONE:
                return outcome
            continue
        before = state.messages
        if not scan(state, room, got):
            return REFUSED
        if state.messages > before:
            tally_add(&tally.seen, state.messages - before)
            last_ns[0] = now_ns()
        if state.pings_answered < state.pings:
            outcome = answer_pings(fd, state, deadline_ns)
            if outcome != DONE:
                return outcome
    return DONE
