# Whole messages out of one connection, as the compiled conversations of the load generator see it.

from penstock.bench.loadgen cimport Outcome

cdef enum:
    ROOM_BYTES = 262144  # must hold one whole message
    COMPLAINT_BYTES_MAX = 256


cdef struct Span:
    const char* data
    Py_ssize_t size


cdef struct Message:
    Span subject
    Span reply
    Span header  # empty for a MSG
    Span payload
    Span body  # from the size on its line to the CRLF behind the payload


cdef struct Intake:
    int fd
    Py_ssize_t used  # bytes of the room already read as messages
    Py_ssize_t filled
    long long pings_owed
    long long pongs
    char complaint[COMPLAINT_BYTES_MAX]  # empty as long as all is well
    char room[ROOM_BYTES]


cdef enum Found:
    NOTHING = 0  # more bytes are needed
    MESSAGE = 1
    BROKEN = 2  # the complaint says why


# One read without waiting; DONE also when nothing was there.
cdef Outcome take_in(Intake* intake) noexcept nogil
# The next whole message; its spans live until the next take_in.
cdef Found next_message(Intake* intake, Message* message) noexcept nogil
cdef Outcome complain(Intake* intake, const char* text) noexcept nogil
cdef Outcome complain_of(Intake* intake, const char* text, const Span* said) noexcept nogil
# A status (NATS/1.0 503) in place of a message's headers; 0 for ordinary headers and none.
cdef int status_of(const Message* message) noexcept nogil
# The number a span spells, -1 if it is none.
cdef long long number_in(const char* data, Py_ssize_t size) noexcept nogil
# What a conversation that did not end well raises.
cdef object failure(Outcome outcome, Intake* intake, str role, str done)
