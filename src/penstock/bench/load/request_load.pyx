"""Requests over one connection with a window of pending ones: publishes with acks, and gets.

Every request has its own reply subject, its number, patched into an encoded frame. Every reply is
checked: an ack must name the expected sequence of its publish, a value must be the one stored under
its key; an error, a duplicate or a second reply fails the run. `samples` also records what is in
flight: 0 means not sent yet, negative is the time of sending, positive is the latency of the reply
in ns.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from penstock.bench.bench_error import BenchError

from penstock.bench.load.message_intake cimport (
    BROKEN, MESSAGE, Found, Intake, Message, complain, complain_of, failure, next_message,
    number_in, status_of, take_in
)
from penstock.bench.load.load_generator cimport DONE, REFUSED, Outcome, await_ready, now_ns
from penstock.bench.load.frame_outlet cimport OUTLET_BYTES, Outlet, is_empty, put, room_for, send_some

cdef extern from "<poll.h>" nogil:
    short POLLIN
    short POLLOUT

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef enum:
    TOKEN_DIGITS = 10  # must match load_frames.py
    STAMP_DIGITS = 8  # must match load_frames.py
    NO_RESPONDERS = 503


cdef struct Talk:
    Intake intake
    Outlet outlet
    const char* frames
    Py_ssize_t frame_bytes
    Py_ssize_t token_at
    Py_ssize_t id_at  # offset of the same number in the header; 0: none
    long long frame_count
    long long window
    long long started
    long long finished
    long long total
    long long* samples
    long long first_seq  # for acks: the first expected sequence
    long long streams    # for acks: how many streams the frames publish to in turn
    Py_ssize_t value_bytes  # for gets: the size of every value
    long long deadline_ns


ctypedef Outcome (*ReplyCheck)(Talk*, const Message*, long long) noexcept nogil


def publish_acked(
    int fd, const unsigned char[::1] frames not None, Py_ssize_t frame_bytes, Py_ssize_t token_at,
    long long window, long long first_seq, long long[::1] samples not None, long long deadline_ns,
    Py_ssize_t id_at=0, long long streams=1,
):
    """Publish len(samples) messages, repeating the frames; return (start_ns, end_ns).

    The first message of a stream must get the sequence `first_seq`, each other one the sequence
    after its predecessor's; the frames publish to `streams` streams in turn. With `id_at` the
    frames have an id at that offset, of the same length as the token.
    """
    cdef Talk* talk = prepare(fd, frames, frame_bytes, token_at, window, samples, deadline_ns)
    talk.first_seq = first_seq
    talk.id_at = id_at
    talk.streams = max(streams, 1)
    return hold(talk, check_ack, "publisher")


def get_values(
    int fd, const unsigned char[::1] frames not None, Py_ssize_t frame_bytes, Py_ssize_t token_at,
    long long window, Py_ssize_t value_bytes, long long[::1] samples not None,
    long long deadline_ns,
):
    """Send len(samples) gets, repeating the frames; return (start_ns, end_ns).

    The value of frame n must be `value_bytes` long and start with the stamp n.
    """
    cdef Talk* talk = prepare(fd, frames, frame_bytes, token_at, window, samples, deadline_ns)
    talk.value_bytes = value_bytes
    return hold(talk, check_value, "reader")


cdef Talk* prepare(
    int fd, const unsigned char[::1] frames, Py_ssize_t frame_bytes, Py_ssize_t token_at,
    long long window, long long[::1] samples, long long deadline_ns,
) except NULL:
    cdef Talk* talk
    if frame_bytes > OUTLET_BYTES:
        raise BenchError(f"a frame of {frame_bytes} bytes is too large to be measured")
    talk = <Talk*> calloc(1, sizeof(Talk))
    if talk == NULL:
        raise MemoryError
    talk.intake.fd = fd
    talk.outlet.fd = fd
    talk.frames = <const char*> &frames[0]
    talk.frame_bytes = frame_bytes
    talk.frame_count = frames.shape[0] // frame_bytes
    talk.token_at = token_at
    talk.window = window
    talk.total = samples.shape[0]
    talk.samples = &samples[0]
    talk.deadline_ns = deadline_ns
    return talk


cdef object hold(Talk* talk, ReplyCheck check, str role):
    cdef Outcome outcome
    cdef long long start_ns = now_ns()
    cdef long long end_ns
    with nogil:
        outcome = drive(talk, check)
        end_ns = now_ns()
    done = f"{talk.finished} of {talk.total} answered"
    error = None if outcome == DONE else failure(outcome, &talk.intake, role, done)
    free(talk)
    if error is not None:
        raise error
    return start_ns, end_ns


cdef Outcome drive(Talk* talk, ReplyCheck check) noexcept nogil:
    cdef Outcome outcome = DONE
    cdef short events
    while outcome == DONE and talk.finished < talk.total:
        ask_more(talk)
        outcome = send_some(&talk.outlet)
        if outcome != DONE:
            break
        events = POLLIN if is_empty(&talk.outlet) else POLLIN | POLLOUT
        outcome = await_ready(talk.intake.fd, events, talk.deadline_ns)
        if outcome == DONE:
            outcome = take_in(&talk.intake)
        if outcome == DONE:
            outcome = read_replies(talk, check)
    return outcome


cdef void ask_more(Talk* talk) noexcept nogil:
    """Append as many requests as the window and the buffer allow."""
    cdef long long asked_ns = now_ns()
    cdef char* frame
    while talk.started < talk.total and talk.started - talk.finished < talk.window:
        frame = room_for(&talk.outlet, talk.frame_bytes)
        if frame == NULL:
            return
        memcpy(
            frame,
            talk.frames + (talk.started % talk.frame_count) * talk.frame_bytes,
            talk.frame_bytes,
        )
        write_token(frame + talk.token_at, talk.started)
        if talk.id_at > 0:
            write_token(frame + talk.id_at, talk.started)
        talk.outlet.filled += talk.frame_bytes
        talk.samples[talk.started] = -asked_ns
        talk.started += 1


cdef void write_token(char* place, long long token) noexcept nogil:
    cdef int index
    for index in range(TOKEN_DIGITS - 1, -1, -1):
        place[index] = <char> (c"0" + token % 10)
        token //= 10


cdef Outcome read_replies(Talk* talk, ReplyCheck check) noexcept nogil:
    cdef Message message
    cdef Outcome outcome
    cdef Found found = next_message(&talk.intake, &message)
    cdef long long received_ns = now_ns()
    while found == MESSAGE:
        outcome = handle_message(talk, check, &message, received_ns)
        if outcome != DONE:
            return outcome
        found = next_message(&talk.intake, &message)
    if found == BROKEN:
        return REFUSED
    while talk.intake.pings_owed > 0:
        talk.intake.pings_owed -= 1
        outcome = put(&talk.outlet, b"PONG\r\n", 6, talk.deadline_ns)
        if outcome != DONE:
            return outcome
    return DONE


cdef Outcome handle_message(
    Talk* talk, ReplyCheck check, const Message* message, long long received_ns
) noexcept nogil:
    cdef Py_ssize_t at = message.subject.size - TOKEN_DIGITS
    cdef long long token = -1
    cdef Outcome outcome
    if at > 0:
        token = number_in(message.subject.data + at, TOKEN_DIGITS)
    if token < 0 or token >= talk.started:
        return complain_of(&talk.intake, b"an answer to no request", &message.subject)
    if talk.samples[token] >= 0:
        return complain_of(&talk.intake, b"a second answer", &message.subject)
    if status_of(message) == NO_RESPONDERS:
        return complain(&talk.intake, b"no stream takes the subject (no responders)")
    outcome = check(talk, message, token)
    if outcome != DONE:
        return outcome
    talk.samples[token] += received_ns
    talk.finished += 1
    return DONE


cdef Outcome check_ack(Talk* talk, const Message* message, long long token) noexcept nogil:
    cdef const char* data = message.payload.data
    cdef Py_ssize_t size = message.payload.size
    cdef const char* found = <const char*> memmem(data, size, b'"seq":', 6)
    cdef const char* end
    if found == NULL or memmem(data, size, b'"error":', 8) != NULL:
        return complain_of(&talk.intake, b"not an ack", &message.payload)
    if memmem(data, size, b'"duplicate":', 12) != NULL:
        return complain_of(&talk.intake, b"taken for a duplicate", &message.payload)
    found += 6
    while found < data + size and found[0] == c" ":
        found += 1
    end = found
    while end < data + size and c"0" <= end[0] <= c"9":
        end += 1
    if number_in(found, end - found) != talk.first_seq + token // talk.streams:
        return complain_of(&talk.intake, b"an ack with the wrong sequence", &message.payload)
    return DONE


cdef Outcome check_value(Talk* talk, const Message* message, long long token) noexcept nogil:
    if status_of(message) != 0:
        return complain_of(&talk.intake, b"no value", &message.header)
    if message.payload.size != talk.value_bytes:
        return complain_of(&talk.intake, b"a value of the wrong size", &message.payload)
    if number_in(message.payload.data, STAMP_DIGITS) != token % talk.frame_count:
        return complain_of(&talk.intake, b"the value of another key", &message.payload)
    return DONE
