# Receive buffer of one connection that yields whole messages, for the compiled loops.

from penstock.bench.load.load_generator cimport Outcome

cdef enum:
    ROOM_BYTES = 262144  # must hold one whole message
    COMPLAINT_BYTES_MAX = 256
    NUMBER_DIGITS_MAX = 18


cdef struct Span:
    const char* data
    Py_ssize_t size


cdef struct Message:
    Span subject
    Span reply
    Span header  # empty for a MSG
    Span payload
    Span body  # from the size on its line to the CRLF after the payload


cdef struct Intake:
    int fd
    Py_ssize_t used  # bytes of the room already parsed as messages
    Py_ssize_t filled
    long long pings_owed
    long long pongs
    char complaint[COMPLAINT_BYTES_MAX]  # empty unless there was an error
    char room[ROOM_BYTES]


cdef enum Found:
    NOTHING = 0  # more bytes are needed
    MESSAGE = 1
    BROKEN = 2  # `complaint` holds the reason


# Reads once without waiting; returns DONE also if there was nothing to read.
cdef Outcome take_in(Intake* intake) noexcept nogil
# Parses the next whole message; its spans are valid until the next take_in.
cdef Found next_message(Intake* intake, Message* message) noexcept nogil
cdef Outcome complain(Intake* intake, const char* text) noexcept nogil
cdef Outcome complain_of(Intake* intake, const char* text, const Span* error_text) noexcept nogil
# Returns the status (NATS/1.0 503) of a message; 0 for normal headers or none.
cdef int status_of(const Message* message) noexcept nogil
# Returns the exception for a conversation that failed.
cdef object failure(Outcome outcome, Intake* intake, str role, str done)


cdef inline long long number_in(const char* data, Py_ssize_t size) noexcept nogil:
    """Return the decimal number in these bytes, -1 if there is none."""
    cdef long long value = 0
    cdef Py_ssize_t index
    if size <= 0 or size > NUMBER_DIGITS_MAX:
        return -1
    for index in range(size):
        if not c"0" <= data[index] <= c"9":
            return -1
        value = value * 10 + (data[index] - c"0")
    return value
