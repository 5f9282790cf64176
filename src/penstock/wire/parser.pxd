"""C declarations of the parser: one frame at a time, as spans into the receive buffer."""

cdef enum Verb:
    # verbs of a peer
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
    # errors
    UNKNOWN_VERB = 32       # unknown operation, or a payload without CRLF at its declared end
    BAD_ARGUMENTS           # wrong number of arguments, or an invalid number
    LINE_TOO_LONG
    PAYLOAD_TOO_BIG
    HEADERS_NOT_ENABLED
    # incomplete frame
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
    Span line               # all arguments
    int nargs
    Span args[4]
    # of a publish
    Span subject
    Span reply
    Span sizes              # "[reply ]sizes\r\n" that can be copied verbatim; empty if it cannot
    const char* body        # header block, payload, CRLF
    size_t size
    size_t hdr_len          # for PAYLOAD_TOO_BIG: the bytes of the block received so far
    # of an incomplete frame
    size_t need             # whole frame length, once its control line is complete; else 0

cdef size_t scan(const char* p, const char* end, const Limits* limits, Frame* frame) noexcept nogil
cdef long parse_size(const char* p, size_t n) noexcept nogil
