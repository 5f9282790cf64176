"""Parse whole messages from a connection: the receiving half of the measured conversations.

Bytes are received into one buffer and messages are spans into it; nothing is allocated or copied.
PING and PONG are counted, and the caller replies to PINGs, because only the caller knows whether it
is between two of its own frames. -ERR, and a message larger than the buffer, end the conversation.
"""

from libc.errno cimport errno
from libc.stdio cimport snprintf
from libc.string cimport memchr, memmove, strerror

from penstock.bench.bench_error import BenchError

from penstock.bench.load.load_generator cimport DEADLINE, DONE, LOST, REFUSED, Outcome, would_block

cdef extern from "<sys/socket.h>" nogil:
    ssize_t recv(int fd, void* data, size_t size, int flags)
    int MSG_DONTWAIT

cdef enum:
    FIELDS_MAX = 6
    ERROR_TEXT_BYTES_MAX = 160
    STATUS_AT = 9  # after "NATS/1.0 "
    STATUS_DIGITS = 3


cdef Outcome take_in(Intake* intake) noexcept nogil:
    cdef ssize_t got
    if intake.used > 0:
        memmove(intake.room, intake.room + intake.used, intake.filled - intake.used)
        intake.filled -= intake.used
        intake.used = 0
    if intake.filled == ROOM_BYTES:
        return complain(intake, b"a message is larger than the room for it")
    got = recv(intake.fd, intake.room + intake.filled, ROOM_BYTES - intake.filled, MSG_DONTWAIT)
    if got < 0:
        return DONE if would_block() else LOST
    if got == 0:
        errno = 0
        return LOST
    intake.filled += got
    return DONE


cdef Found next_message(Intake* intake, Message* message) noexcept nogil:
    cdef const char* line
    cdef const char* newline
    while True:
        line = intake.room + intake.used
        newline = <const char*> memchr(line, b"\n", intake.filled - intake.used)
        if newline == NULL:
            return NOTHING
        if line[0] == c"M" or line[0] == c"H":
            return read_message(intake, message, line, newline - line + 1)
        if not read_control(intake, line, newline - line):
            return BROKEN
        intake.used += newline - line + 1


cdef bint read_control(Intake* intake, const char* line, Py_ssize_t size) noexcept nogil:
    cdef Span error_text
    if size >= 4 and line[0] == c"P" and line[1] == c"I":
        intake.pings_owed += 1
    elif size >= 4 and line[0] == c"P" and line[1] == c"O":
        intake.pongs += 1
    elif size == 0 or (line[0] != c"+" and line[0] != c"I"):
        error_text.data = line
        error_text.size = size
        complain_of(intake, b"server said", &error_text)
        return False
    return True


cdef Found read_message(
    Intake* intake, Message* message, const char* line, Py_ssize_t line_bytes
) noexcept nogil:
    cdef Span fields[FIELDS_MAX]
    cdef int count = split(line, line_bytes, fields)
    cdef bint with_header = line[0] == c"H"
    cdef int sizes = 2 if with_header else 1
    cdef long long header = 0
    cdef long long total = -1
    if count >= 3 + sizes:
        total = number_in(fields[count - 1].data, fields[count - 1].size)
        if with_header:
            header = number_in(fields[count - 2].data, fields[count - 2].size)
    if total < 0 or header < 0 or header > total:
        complain(intake, b"message line without a size")
        return BROKEN
    if line_bytes + total + 2 > intake.filled - intake.used:
        return NOTHING
    message.subject = fields[1]
    message.reply.size = 0
    if count == 4 + sizes:
        message.reply = fields[3]
    message.header.data = line + line_bytes
    message.header.size = header
    message.payload.data = line + line_bytes + header
    message.payload.size = total - header
    message.body.data = fields[count - 1].data
    message.body.size = line + line_bytes + total + 2 - message.body.data
    intake.used += line_bytes + total + 2
    return MESSAGE


cdef int split(const char* line, Py_ssize_t size, Span* fields) noexcept nogil:
    """Split a line at blanks, without its CRLF; return the number of fields."""
    cdef const char* end = line + size - 1
    cdef const char* stop
    cdef int count = 0
    if end > line and end[-1] == c"\r":
        end -= 1
    while line < end and count < FIELDS_MAX:
        stop = <const char*> memchr(line, b" ", end - line)
        if stop == NULL:
            stop = end
        if stop > line:
            fields[count].data = line
            fields[count].size = stop - line
            count += 1
        line = stop + 1
    return count


cdef int status_of(const Message* message) noexcept nogil:
    cdef const char* header = message.header.data
    if message.header.size < STATUS_AT + STATUS_DIGITS or header[STATUS_AT - 1] != c" ":
        return 0
    return <int> max(0, number_in(header + STATUS_AT, STATUS_DIGITS))


cdef Outcome complain(Intake* intake, const char* text) noexcept nogil:
    snprintf(intake.complaint, COMPLAINT_BYTES_MAX, "%s", text)
    return REFUSED


cdef Outcome complain_of(Intake* intake, const char* text, const Span* error_text) noexcept nogil:
    cdef int size = <int> min(error_text.size, <Py_ssize_t> ERROR_TEXT_BYTES_MAX)
    snprintf(intake.complaint, COMPLAINT_BYTES_MAX, "%s: %.*s", text, size, error_text.data)
    return REFUSED


cdef object failure(Outcome outcome, Intake* intake, str role, str done):
    if outcome == REFUSED:
        complaint = intake.complaint.decode("utf-8", "replace").strip()
        return BenchError(f"{role}: {complaint} ({done})")
    if outcome == DEADLINE:
        return BenchError(f"{role}: not finished in time ({done})")
    reason = strerror(errno).decode() if errno else "closed by the server"
    return BenchError(f"{role}: connection lost: {reason} ({done})")
