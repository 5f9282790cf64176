"""Request/reply: n requesters with one request in flight each, and one responder that echoes.

One epoll loop drives all of them, so the generator adds a single thread to the machine and the
latency measured is mostly the server's. Every request carries a fresh reply token, patched into
its encoded frame, and its answer must come back on exactly that subject. Connections have
finished their handshake, with nothing left unread. Ends by success, error or deadline.
"""

from libc.errno cimport errno
from libc.stdint cimport uint32_t
from libc.stdio cimport snprintf
from libc.stdlib cimport calloc, free
from libc.string cimport memchr, memcmp, memcpy, memmove, memset, strerror
from posix.unistd cimport close

from penstock.bench.failure import BenchError

from penstock.bench.loadgen cimport (
    DEADLINE, DONE, LOST, REFUSED, Outcome, now_ns, send_all, would_block
)

cdef extern from "<sys/epoll.h>" nogil:
    ctypedef union epoll_data_t:
        uint32_t u32

    struct epoll_event:
        uint32_t events
        epoll_data_t data

    int epoll_create1(int flags)
    int epoll_ctl(int epfd, int op, int fd, epoll_event* event)
    int epoll_wait(int epfd, epoll_event* events, int count, int timeout_ms)
    int EPOLL_CTL_ADD
    uint32_t EPOLLIN

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    int MSG_DONTWAIT

cdef enum:
    ROOM_BYTES = 262144  # must hold one whole message
    EVENTS_MAX = 64
    WAIT_MS_MAX = 50
    TOKEN_DIGITS = 10
    FIELDS_MAX = 6
    MESSAGE_FIELDS_MIN = 4
    SIZE_DIGITS_MAX = 10
    COMPLAINT_BYTES_MAX = 256


cdef struct Peer:
    int fd
    char* frame  # the request; NULL for the responder
    Py_ssize_t frame_bytes
    long long sent_ns
    Py_ssize_t filled
    char room[ROOM_BYTES]


cdef struct Span:
    const char* data
    Py_ssize_t size


cdef struct Message:
    Span subject
    Span reply
    Span body
    bint is_status  # HMSG: nobody answers with headers here, so it is the server's no-responders
    Py_ssize_t size  # of the whole message; 0 = not all there yet, -1 = broken


cdef struct Run:
    Peer* peers  # the responder is the last one
    int count
    Py_ssize_t token_at
    long long started
    long long finished
    long long total
    long long* samples
    long long deadline_ns
    char complaint[COMPLAINT_BYTES_MAX]
    char replies[ROOM_BYTES]


def exchange(
    list requests not None,
    int responder_fd,
    Py_ssize_t token_at,
    long long[::1] samples not None,
    long long deadline_ns,
):
    """Make len(samples) requests and store each one's latency in ns; returns (start_ns, end_ns).

    `requests` has a descriptor and an encoded request frame per requester; the reply subject of
    every frame ends at the same offset with TOKEN_DIGITS digits starting at `token_at`.
    """
    cdef Run* run = <Run*> calloc(1, sizeof(Run))
    cdef Outcome outcome
    cdef long long start_ns = now_ns()
    if run == NULL:
        raise MemoryError
    run.count = len(requests) + 1
    run.peers = <Peer*> calloc(run.count, sizeof(Peer))
    if run.peers == NULL:
        free(run)
        raise MemoryError
    introduce(run, requests, responder_fd)
    run.token_at = token_at
    run.total = samples.shape[0]
    run.samples = &samples[0]
    run.deadline_ns = deadline_ns
    with nogil:
        outcome = drive(run)
    end_ns = now_ns()
    error = None if outcome == DONE else failure(outcome, run)
    free(run.peers)
    free(run)
    if error is not None:
        raise error
    return start_ns, end_ns


cdef int introduce(Run* run, list requests, int responder_fd) except -1:
    # The caller's list keeps the frames alive, and nobody resizes them meanwhile.
    cdef bytearray frame
    for index, (fd, frame) in enumerate(requests):
        run.peers[index].fd = fd
        run.peers[index].frame = frame
        run.peers[index].frame_bytes = len(frame)
    run.peers[run.count - 1].fd = responder_fd
    return 0


cdef object failure(Outcome outcome, Run* run):
    done = f"{run.finished} of {run.total} requests answered"
    if outcome == REFUSED:
        complaint = run.complaint.decode("utf-8", "replace").strip()
        return BenchError(f"request/reply: {complaint} ({done})")
    if outcome == DEADLINE:
        return BenchError(f"request/reply: not finished in time ({done})")
    reason = strerror(errno).decode() if errno else "closed by the server"
    return BenchError(f"request/reply: connection lost: {reason} ({done})")


cdef Outcome drive(Run* run) noexcept nogil:
    cdef int epfd = epoll_create1(0)
    cdef epoll_event event
    cdef Outcome outcome = DONE
    cdef int index
    for index in range(run.count):
        event.events = EPOLLIN
        event.data.u32 = index
        epoll_ctl(epfd, EPOLL_CTL_ADD, run.peers[index].fd, &event)
    for index in range(run.count - 1):
        if outcome == DONE:
            outcome = next_request(run, &run.peers[index])
    while outcome == DONE and run.finished < run.total:
        outcome = turn(run, epfd)
    close(epfd)
    return outcome


cdef Outcome turn(Run* run, int epfd) noexcept nogil:
    cdef epoll_event events[EVENTS_MAX]
    cdef int count = epoll_wait(epfd, events, EVENTS_MAX, WAIT_MS_MAX)
    cdef Outcome outcome
    cdef int index
    if now_ns() >= run.deadline_ns:
        return DEADLINE
    for index in range(count):
        outcome = hear(run, &run.peers[events[index].data.u32])
        if outcome != DONE:
            return outcome
    return DONE


cdef Outcome next_request(Run* run, Peer* peer) noexcept nogil:
    cdef long long token = run.started
    cdef char* digit = peer.frame + run.token_at + TOKEN_DIGITS
    if run.started >= run.total:
        return DONE
    run.started += 1
    for _ in range(TOKEN_DIGITS):
        digit -= 1
        digit[0] = <char> (c"0" + token % 10)
        token //= 10
    peer.sent_ns = now_ns()
    return send_all(peer.fd, peer.frame, peer.frame_bytes, run.deadline_ns)


cdef Outcome hear(Run* run, Peer* peer) noexcept nogil:
    cdef Py_ssize_t used = 0
    cdef Outcome outcome
    cdef ssize_t got
    if peer.filled == ROOM_BYTES:
        return complain(run, b"a message is larger than the request loop can hold")
    got = recv(peer.fd, peer.room + peer.filled, ROOM_BYTES - peer.filled, MSG_DONTWAIT)
    if got < 0:
        return DONE if would_block() else LOST
    if got == 0:
        errno = 0
        return LOST
    peer.filled += got
    if peer.frame == NULL:
        outcome = answer_all(run, peer, &used)
    else:
        outcome = take_answers(run, peer, &used)
    memmove(peer.room, peer.room + used, peer.filled - used)
    peer.filled -= used
    return outcome


cdef Outcome take_answers(Run* run, Peer* peer, Py_ssize_t* used) noexcept nogil:
    cdef Message message
    cdef Outcome outcome
    while True:
        message = next_message(run, peer, used[0])
        if message.size <= 0:
            return REFUSED if message.size < 0 else DONE
        used[0] += message.size
        if message.subject.size == 0:
            continue
        if message.is_status:
            return complain(run, b"no responder was there")
        if not is_expected(run, peer, &message.subject):
            return complain(run, b"an answer came on the wrong subject")
        run.samples[run.finished] = now_ns() - peer.sent_ns
        run.finished += 1
        outcome = next_request(run, peer)
        if outcome != DONE:
            return outcome


cdef bint is_expected(Run* run, Peer* peer, Span* subject) noexcept nogil:
    # The reply subject in the frame ends with the token, so comparing backwards needs one offset.
    cdef Py_ssize_t end = run.token_at + TOKEN_DIGITS
    return (
        subject.size <= end
        and memcmp(peer.frame + end - subject.size, subject.data, subject.size) == 0
        and peer.frame[end - subject.size - 1] == c" "
    )


cdef Outcome answer_all(Run* run, Peer* peer, Py_ssize_t* used) noexcept nogil:
    """Echo every whole request in the room, in one write if they fit."""
    cdef Message message
    cdef Py_ssize_t filled = 0
    cdef Py_ssize_t need
    cdef Outcome outcome
    while True:
        message = next_message(run, peer, used[0])
        if message.size < 0:
            return REFUSED
        if message.size == 0:
            return send_all(peer.fd, run.replies, filled, run.deadline_ns)
        used[0] += message.size
        if message.reply.size == 0:
            continue
        # The room holds the whole request, whose line is longer than that of its answer.
        need = message.size
        if filled + need > ROOM_BYTES:
            outcome = send_all(peer.fd, run.replies, filled, run.deadline_ns)
            if outcome != DONE:
                return outcome
            filled = 0
        filled += encode_answer(run.replies + filled, &message)


cdef Py_ssize_t encode_answer(char* out, Message* message) noexcept nogil:
    # The body span reaches from the size on the request's line to the CRLF of its payload.
    memcpy(out, b"PUB ", 4)
    memcpy(out + 4, message.reply.data, message.reply.size)
    out[4 + message.reply.size] = c" "
    memcpy(out + 5 + message.reply.size, message.body.data, message.body.size)
    return 5 + message.reply.size + message.body.size


cdef Message next_message(Run* run, Peer* peer, Py_ssize_t at) noexcept nogil:
    """The message that starts at `at`; other lines come back without a subject."""
    cdef Message message
    cdef const char* line = peer.room + at
    cdef Py_ssize_t left = peer.filled - at
    cdef const char* newline = <const char*> memchr(line, b"\n", left)
    memset(&message, 0, sizeof(Message))
    if newline == NULL:
        return message
    if line[0] == c"-":
        left = newline - line
        snprintf(run.complaint, COMPLAINT_BYTES_MAX, "server said: %.*s", <int> left, line)
        message.size = -1
    elif line[0] == c"M" or line[0] == c"H":
        read_message(&message, line, newline - line + 1, left)
        if message.size < 0:
            complain(run, b"message line without a size")
    else:
        message.size = newline - line + 1
        if line[0] == c"P" and line[1] == c"I":
            send_all(peer.fd, b"PONG\r\n", 6, run.deadline_ns)
    return message


cdef void read_message(
    Message* message, const char* line, Py_ssize_t line_bytes, Py_ssize_t left
) noexcept nogil:
    cdef Span fields[FIELDS_MAX]
    cdef int count = split(line, line_bytes, fields)
    cdef Span* size_field = &fields[count - 1]
    cdef Py_ssize_t payload = 0
    cdef Py_ssize_t index
    message.size = -1
    if count < MESSAGE_FIELDS_MIN or size_field.size > SIZE_DIGITS_MAX:
        return
    for index in range(size_field.size):
        if not c"0" <= size_field.data[index] <= c"9":
            return
        payload = payload * 10 + (size_field.data[index] - c"0")
    message.size = 0
    if line_bytes + payload + 2 > left:
        return
    message.size = line_bytes + payload + 2
    message.subject = fields[1]
    message.is_status = line[0] == c"H"
    if count == 5 and not message.is_status:
        message.reply = fields[3]
    message.body.data = size_field.data
    message.body.size = line + message.size - size_field.data


cdef int split(const char* line, Py_ssize_t size, Span* fields) noexcept nogil:
    """Fields of a line between blanks, at least one."""
    cdef int count = 0
    cdef Py_ssize_t start = 0
    cdef Py_ssize_t pos
    for pos in range(size):
        if line[pos] != c" " and line[pos] != c"\r" and line[pos] != c"\n":
            continue
        if pos > start and count < FIELDS_MAX:
            fields[count].data = line + start
            fields[count].size = pos - start
            count += 1
        start = pos + 1
    return max(count, 1)


cdef Outcome complain(Run* run, const char* text) noexcept nogil:
    snprintf(run.complaint, COMPLAINT_BYTES_MAX, "%s", text)
    return REFUSED
