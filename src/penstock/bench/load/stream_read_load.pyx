"""Read a filled stream through one consumer, pushed or pulled, and verify what was read.

The stream must arrive complete and in order, each message delivered once: stream and consumer
sequence in the reply subject, and the stamp in the payload, count up together; the last message has
no pending ones, and no message follows it. The reader replies to flow control, sends acks if
requested, and sends a new pull after every finished batch. The acks for the messages of one read
are sent in one write.
"""

from libc.stdlib cimport calloc, free
from libc.string cimport memchr

from penstock.bench.bench_error import BenchError

from penstock.bench.load.message_intake cimport (
    BROKEN, MESSAGE, Found, Intake, Message, Span, complain, complain_of, failure, next_message,
    number_in, status_of, take_in
)
from penstock.bench.load.load_generator cimport DONE, REFUSED, Outcome, await_ready, now_ns
from penstock.bench.load.frame_outlet cimport OUTLET_BYTES, Outlet, drain, put

cdef extern from "<poll.h>" nogil:
    short POLLIN

cdef extern from "<string.h>" nogil:
    void* memmem(const void* data, size_t size, const void* wanted, size_t wanted_size)

cdef enum:
    STAMP_DIGITS = 8  # must match load_frames.py
    IDLE = 100  # the status of heartbeats and flow control
    TOKENS_MAX = 13
    PLAIN_TOKENS = 9  # $JS.ACK.<stream>.<consumer> and five numbers
    DOMAIN_TOKENS = 11  # with domain and account before the stream
    NUMBERS_AT = 4
    DOMAIN_NUMBERS_AT = 6
    STALLED_BYTES = 23  # length of the header name below


cdef struct Position:
    long long delivered
    long long stream_seq
    long long consumer_seq
    long long pending


cdef struct Reading:
    Intake intake
    Outlet outlet
    const char* request  # the next pull; NULL for a pushed stream
    Py_ssize_t request_bytes
    long long batch
    bint acks
    long long cycle
    long long seen
    long long total
    long long deadline_ns


def read_stream(
    int fd, bytes opening not None, long long total, long long cycle, long long deadline_ns, *,
    bytes request not None = b"", long long batch = 0, bint acks = False,
):
    """Send `opening` and read messages 1..total of a stream; return (start_ns, end_ns).

    Payloads carry the stamps 0..cycle-1, repeated. `request` is sent again after every `batch`
    messages. The end is the PONG after the last ack, or the last message without acks.
    """
    cdef long long span[2]
    cdef Outcome outcome
    cdef Py_ssize_t opening_bytes = len(opening)
    cdef const char* first = opening
    cdef Reading* reading
    if opening_bytes > OUTLET_BYTES:
        raise BenchError("the opening request is too large")
    reading = <Reading*> calloc(1, sizeof(Reading))
    if reading == NULL:
        raise MemoryError
    reading.intake.fd = fd
    reading.outlet.fd = fd
    reading.request = request
    reading.request_bytes = len(request)
    reading.batch = batch
    reading.acks = acks
    reading.cycle = cycle
    reading.total = total
    reading.deadline_ns = deadline_ns
    with nogil:
        outcome = read_all(reading, first, opening_bytes, span)
    done = f"{reading.seen} of {total} read"
    error = None if outcome == DONE else failure(outcome, &reading.intake, "reader", done)
    free(reading)
    if error is not None:
        raise error
    return span[0], span[1]


cdef Outcome read_all(
    Reading* reading, const char* opening, Py_ssize_t opening_bytes, long long* span
) noexcept nogil:
    cdef Outcome outcome
    span[0] = now_ns()
    outcome = put(&reading.outlet, opening, opening_bytes, reading.deadline_ns)
    while outcome == DONE and reading.seen < reading.total:
        outcome = turn(reading)
    span[1] = now_ns()
    if outcome == DONE:
        outcome = put(&reading.outlet, b"PING\r\n", 6, reading.deadline_ns)
    while outcome == DONE and reading.intake.pongs == 0:
        outcome = turn(reading)
    if reading.acks:
        span[1] = now_ns()
    return outcome


cdef Outcome turn(Reading* reading) noexcept nogil:
    cdef Message message
    cdef Found found
    cdef Outcome outcome = drain(&reading.outlet, reading.deadline_ns)
    if outcome == DONE:
        outcome = await_ready(reading.intake.fd, POLLIN, reading.deadline_ns)
    if outcome == DONE:
        outcome = take_in(&reading.intake)
    while outcome == DONE:
        found = next_message(&reading.intake, &message)
        if found == BROKEN:
            return REFUSED
        if found != MESSAGE:
            return answer_pings(reading)
        outcome = handle_message(reading, &message)
    return outcome


cdef Outcome answer_pings(Reading* reading) noexcept nogil:
    cdef Outcome outcome = DONE
    while outcome == DONE and reading.intake.pings_owed > 0:
        reading.intake.pings_owed -= 1
        outcome = put(&reading.outlet, b"PONG\r\n", 6, reading.deadline_ns)
    return outcome


cdef Outcome handle_message(Reading* reading, const Message* message) noexcept nogil:
    cdef int status = status_of(message)
    if status == IDLE:
        return answer_idle(reading, message)
    if status != 0:
        return complain_of(&reading.intake, b"no message", &message.header)
    if message.reply.size > 0:
        return handle_stored(reading, message)
    # Only the reply to the opening request comes without a reply subject.
    if memmem(message.payload.data, message.payload.size, b'"error":', 8) != NULL:
        return complain_of(&reading.intake, b"refused", &message.payload)
    return DONE


cdef Outcome handle_stored(Reading* reading, const Message* message) noexcept nogil:
    cdef Position position
    cdef long long expected = reading.seen + 1
    cdef Outcome outcome = DONE
    if reading.seen == reading.total:
        return complain_of(&reading.intake, b"one more than was stored", &message.reply)
    if not read_position(&message.reply, &position):
        return complain_of(&reading.intake, b"a reply subject without position", &message.reply)
    if position.stream_seq != expected or position.consumer_seq != expected:
        return complain_of(&reading.intake, b"out of sequence", &message.reply)
    if position.delivered != 1:
        return complain_of(&reading.intake, b"delivered again", &message.reply)
    if message.payload.size < STAMP_DIGITS:
        return complain(&reading.intake, b"a payload without its stamp")
    if number_in(message.payload.data, STAMP_DIGITS) != reading.seen % reading.cycle:
        return complain_of(&reading.intake, b"the payload of another message", &message.reply)
    reading.seen = expected
    if reading.seen == reading.total and position.pending != 0:
        return complain_of(&reading.intake, b"the last one has others behind it", &message.reply)
    if reading.acks:
        outcome = acknowledge(reading, &message.reply)
    if outcome == DONE and reading.request_bytes > 0 and reading.seen % reading.batch == 0:
        outcome = put(
            &reading.outlet, reading.request, reading.request_bytes, reading.deadline_ns
        )
    return outcome


cdef bint read_position(const Span* reply, Position* position) noexcept nogil:
    cdef long long numbers[TOKENS_MAX]
    cdef const char* at = reply.data
    cdef const char* end = reply.data + reply.size
    cdef const char* dot
    cdef int count = 0
    while at < end and count < TOKENS_MAX:
        dot = <const char*> memchr(at, b".", end - at)
        if dot == NULL:
            dot = end
        if count >= NUMBERS_AT:
            numbers[count] = number_in(at, dot - at)
        at = dot + 1
        count += 1
    if count >= DOMAIN_TOKENS:
        take_position(numbers + DOMAIN_NUMBERS_AT, position)
    elif count == PLAIN_TOKENS:
        take_position(numbers + NUMBERS_AT, position)
    else:
        return False
    return True


cdef inline void take_position(const long long* numbers, Position* position) noexcept nogil:
    position.delivered = numbers[0]
    position.stream_seq = numbers[1]
    position.consumer_seq = numbers[2]
    position.pending = numbers[4]


cdef Outcome acknowledge(Reading* reading, const Span* subject) noexcept nogil:
    return publish(reading, subject, b" 4\r\n+ACK\r\n", 10)


cdef Outcome answer_idle(Reading* reading, const Message* message) noexcept nogil:
    """Reply to flow control with an empty message, also if a heartbeat reports a stall."""
    cdef Span stalled
    cdef const char* end = message.header.data + message.header.size
    if message.reply.size > 0:
        return publish(reading, &message.reply, b" 0\r\n\r\n", 6)
    stalled.data = <const char*> memmem(
        message.header.data, message.header.size, b"Nats-Consumer-Stalled: ", STALLED_BYTES
    )
    if stalled.data == NULL:
        return DONE
    stalled.data += STALLED_BYTES
    stalled.size = 0
    while stalled.data + stalled.size < end and stalled.data[stalled.size] != c"\r":
        stalled.size += 1
    return publish(reading, &stalled, b" 0\r\n\r\n", 6)


cdef Outcome publish(
    Reading* reading, const Span* subject, const char* rest, Py_ssize_t rest_bytes
) noexcept nogil:
    cdef Outcome outcome = put(&reading.outlet, b"PUB ", 4, reading.deadline_ns)
    if outcome == DONE:
        outcome = put(&reading.outlet, subject.data, subject.size, reading.deadline_ns)
    if outcome == DONE:
        outcome = put(&reading.outlet, rest, rest_bytes, reading.deadline_ns)
    return outcome
