"""Request/reply: n requesters with one request in flight each, and one responder that echoes.

One epoll loop drives all of them, so the generator adds a single thread to the machine and the
measured latency is mostly the server's. Every request carries a new reply token, patched into its
encoded frame, and its reply must arrive on exactly that subject. The connections have finished
their handshake and have no unread bytes. Ends by success, error or deadline.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy
from posix.unistd cimport close

from penstock.bench.load.message_intake cimport (
    BROKEN, MESSAGE, ROOM_BYTES, Found, Intake, Message, Span, complain, failure, next_message,
    status_of, take_in
)
from penstock.bench.load.load_generator cimport DEADLINE, DONE, REFUSED, Outcome, now_ns, send_all

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

cdef enum:
    EVENTS_MAX = 64
    WAIT_MS_MAX = 50
    TOKEN_DIGITS = 10


cdef struct Peer:
    Intake intake
    char* frame  # the request; NULL for the responder
    Py_ssize_t frame_bytes
    long long sent_ns


cdef struct Run:
    Peer* peers  # the responder is the last one
    Peer* failed
    int count
    Py_ssize_t token_at
    long long started
    long long finished
    long long total
    long long* samples
    long long deadline_ns
    char replies[ROOM_BYTES]


def exchange(
    list requests not None,
    int responder_fd,
    Py_ssize_t token_at,
    long long[::1] samples not None,
    long long deadline_ns,
):
    """Send len(samples) requests and store the latency of each in ns; return (start_ns, end_ns).

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
    run.failed = run.peers
    introduce(run, requests, responder_fd)
    run.token_at = token_at
    run.total = samples.shape[0]
    run.samples = &samples[0]
    run.deadline_ns = deadline_ns
    with nogil:
        outcome = drive(run)
    end_ns = now_ns()
    done = f"{run.finished} of {run.total} requests answered"
    error = None
    if outcome != DONE:
        error = failure(outcome, &run.failed.intake, "request/reply", done)
    free(run.peers)
    free(run)
    if error is not None:
        raise error
    return start_ns, end_ns


cdef int introduce(Run* run, list requests, int responder_fd) except -1:
    # The caller's list keeps the frames alive, and no code resizes them meanwhile.
    cdef bytearray frame
    for index, (fd, frame) in enumerate(requests):
        run.peers[index].intake.fd = fd
        run.peers[index].frame = frame
        run.peers[index].frame_bytes = len(frame)
    run.peers[run.count - 1].intake.fd = responder_fd
    return 0


cdef Outcome drive(Run* run) noexcept nogil:
    cdef int epfd = epoll_create1(0)
    cdef epoll_event event
    cdef Outcome outcome = DONE
    cdef int index
    for index in range(run.count):
        event.events = EPOLLIN
        event.data.u32 = index
        epoll_ctl(epfd, EPOLL_CTL_ADD, run.peers[index].intake.fd, &event)
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
    cdef Peer* peer
    cdef int index
    if now_ns() >= run.deadline_ns:
        return DEADLINE
    for index in range(count):
        peer = &run.peers[events[index].data.u32]
        outcome = read_input(run, peer)
        if outcome != DONE:
            run.failed = peer
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
    return send_all(peer.intake.fd, peer.frame, peer.frame_bytes, run.deadline_ns)


cdef Outcome read_input(Run* run, Peer* peer) noexcept nogil:
    cdef Outcome outcome = take_in(&peer.intake)
    if outcome == DONE and peer.frame == NULL:
        outcome = answer_all(run, peer)
    elif outcome == DONE:
        outcome = take_answers(run, peer)
    # Every frame is sent whole, so a PONG may follow here.
    while outcome == DONE and peer.intake.pings_owed > 0:
        peer.intake.pings_owed -= 1
        outcome = send_all(peer.intake.fd, b"PONG\r\n", 6, run.deadline_ns)
    return outcome


cdef Outcome take_answers(Run* run, Peer* peer) noexcept nogil:
    cdef Message message
    cdef Outcome outcome = DONE
    cdef Found found = next_message(&peer.intake, &message)
    while outcome == DONE and found == MESSAGE:
        if status_of(&message) != 0:
            return complain(&peer.intake, b"no responder was there")
        if not is_expected(run, peer, &message.subject):
            return complain(&peer.intake, b"an answer came on the wrong subject")
        run.samples[run.finished] = now_ns() - peer.sent_ns
        run.finished += 1
        outcome = next_request(run, peer)
        if outcome == DONE:
            found = next_message(&peer.intake, &message)
    return REFUSED if found == BROKEN else outcome


cdef bint is_expected(Run* run, Peer* peer, Span* subject) noexcept nogil:
    # The reply subject in the frame ends with the token, so comparing backwards needs one offset.
    cdef Py_ssize_t end = run.token_at + TOKEN_DIGITS
    return (
        subject.size <= end
        and memcmp(peer.frame + end - subject.size, subject.data, subject.size) == 0
        and peer.frame[end - subject.size - 1] == c" "
    )


cdef Outcome answer_all(Run* run, Peer* peer) noexcept nogil:
    """Echo every whole request in the buffer in one write; a reply is shorter than its request."""
    cdef Message message
    cdef Py_ssize_t filled = 0
    cdef Found found = next_message(&peer.intake, &message)
    while found == MESSAGE:
        if message.reply.size > 0:
            filled += encode_answer(run.replies + filled, &message)
        found = next_message(&peer.intake, &message)
    if found == BROKEN:
        return REFUSED
    return send_all(peer.intake.fd, run.replies, filled, run.deadline_ns)


cdef Py_ssize_t encode_answer(char* out, Message* message) noexcept nogil:
    # The body span reaches from the size on the request's line to the CRLF of its payload.
    memcpy(out, b"PUB ", 4)
    memcpy(out + 4, message.reply.data, message.reply.size)
    out[4 + message.reply.size] = c" "
    memcpy(out + 5 + message.reply.size, message.body.data, message.body.size)
    return 5 + message.reply.size + message.body.size
