"""Inlined checks that a link makes on every message: subject, reply, header block, text."""

from libc.stdint cimport uint32_t
from libc.string cimport memchr, memcmp, strlen

from penstock.subjects.trie_nodes cimport has_empty_token, has_wildcard
from penstock.wire.parser cimport (
    CONNECT, HPUB, INFO, MINUS_ERR, PING, PLUS_OK, PONG, PUB, SUB, UNSUB, Frame,
)

cdef extern from "<strings.h>" nogil:
    int strncasecmp(const char* a, const char* b, size_t n)

cdef enum:
    TRACE_LINE_BYTES_MIN = 19    # shortest rest of a block, from a key that requests a trace
    OTHER_LINE_BYTES_MIN = 4     # shortest line of another key


cdef inline uint32_t count_tokens(const char* subject, size_t n) noexcept nogil:
    cdef size_t i
    cdef uint32_t tokens = 1
    for i in range(n):
        tokens += subject[i] == c'.'
    return tokens


cdef inline bint literal_subject(const char* subject, size_t n) noexcept nogil:
    return not has_empty_token(subject, n) and not has_wildcard(subject, n)


cdef inline bint starts_with(const char* text, size_t n, const char* prefix) noexcept nogil:
    cdef size_t length = strlen(prefix)
    return n >= length and memcmp(text, prefix, length) == 0


cdef inline bint reserved_reply(const char* reply, size_t n) noexcept nogil:
    """Return whether only servers use such a reply: a client could impersonate them with it."""
    return (starts_with(reply, n, b"_R_.") or starts_with(reply, n, b"_GR_.")
            or starts_with(reply, n, b"$JS.ACK."))


cdef inline bint reserved_subject(const char* subject, size_t n, bint is_system) noexcept nogil:
    """Return whether only servers publish there; the system account's clients may use `$NRG.`."""
    if n == 0:
        return False
    return ((subject[0] == c'_' and starts_with(subject, n, b"_GR_."))
            or (subject[0] == c'$' and not is_system and starts_with(subject, n, b"$NRG.")))


cdef inline bint asks_for_trace(const char* header, size_t n, bint samples) noexcept nogil:
    """Return whether a key may request a trace; `trace_headers` decides.

    With `samples`, traceparent counts too.
    Runs for every header. A line costs a check of one byte, since few keys have a T as their sixth
    byte, and a search for its end if another such line has room after it.
    """
    cdef const char* end = header + n
    cdef const char* at = header
    if n > 10 and header[9] == c'\n':     # a status line without a status, as in every publish
        at = header + 10
    while end - at >= TRACE_LINE_BYTES_MIN:
        if at[5] == c'T' and memcmp(at, b"Nats-Trace-Dest", 15) == 0:
            return True
        if samples and strncasecmp(at, b"traceparent", 11) == 0:
            return True
        if end - at < TRACE_LINE_BYTES_MIN + OTHER_LINE_BYTES_MIN:
            return False
        at = <const char*>memchr(at, c'\n', end - at)
        if at == NULL:
            return False
        at += 1
    return False


cdef inline str text_of(const char* p, size_t n):
    return p[:n].decode("utf-8", "surrogateescape")


cdef inline str frame_text(Frame* frame):
    verb = {PUB: "PUB", HPUB: "HPUB", SUB: "SUB", UNSUB: "UNSUB", PING: "PING", PONG: "PONG",
            CONNECT: "CONNECT", INFO: "INFO", PLUS_OK: "+OK", MINUS_ERR: "-ERR"}[frame.verb]
    if frame.verb in (PING, PONG, PLUS_OK, CONNECT):
        return verb    # a CONNECT line contains secrets
    return f"{verb} {text_of(frame.line.p, frame.line.n)}"
