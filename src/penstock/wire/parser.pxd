"""C surface of the parser: one frame at a time, as spans into the receive buffer."""

cdef enum Verb:
    # what a peer may say
    PUB = 1
    HPUB
    SUB
    UNSUB
    PING
    PONG
    CONNECT
    INFO
    PLUS_OK
    MINUS_ERR
    # what is wrong with what it said
    UNKNOWN_VERB = 32       # not the protocol, or a payload that does not end where it said
    BAD_ARGUMENTS           # wrong number of arguments, or a number that is none
    LINE_TOO_LONG
    PAYLOAD_TOO_BIG
    HEADERS_NOT_ENABLED
    # nothing whole yet
    NEED_MORE = 64

cdef struct Span:
    const char* p
    size_t n

cdef struct Limits:
    size_t max_control_line
    size_t max_payload
    bint headers            # HPUB is allowed

cdef struct Frame:
    int verb
    Span line               # arguments, as one piece
    int nargs
    Span args[4]
    # of a publish
    Span subject
    Span reply
    Span sizes              # "[reply ]sizes\r\n" to be copied as it stands; empty if it cannot be
    const char* body        # header block, payload, CRLF
    size_t size
    size_t hdr_len          # of a payload that is too big: as much of the block as is there
    # of an incomplete frame
    size_t need             # whole length, once its control line is known; else 0

cdef size_t scan(const char* p, const char* end, const Limits* limits, Frame* frame) noexcept nogil
cdef long parse_size(const char* p, size_t n) noexcept nogil
