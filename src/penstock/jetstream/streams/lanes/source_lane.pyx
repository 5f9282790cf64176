"""The lane of a mirror or source: stores the origin's deliveries in C, while the router routes
them.

It takes the next expected delivery, of a message without stream keys in its header, into a stream
that needs only an append and limits. It leaves everything else (heartbeats, flow control, gaps) to
the source reader, with all that follows in the same turn. Both paths advance the same
`SourceCursor` and append to the same log; a property test compares them.

The stream's own lane counts the messages taken here as its own, so that consumers are notified and
the messages become durable. This lane sends nothing to the origin.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memcmp, memcpy

from penstock.base.sequences cimport SEQ_MAX
from penstock.broker.router cimport put_number

cdef extern from "<string.h>" nogil:
    void* memmem(const void* hay, size_t hay_len, const void* needle, size_t needle_len)

cdef enum:
    HEADER_BYTES_MAX = 4096       # with the source header; larger ones go to the Python path
    NUMBER_DIGITS_MAX = 19        # a longer number may overflow
    VERSION_LEN = 8
    SPECIAL_LEN = 7
    ACK_LEN = 8
    SHORT_DOTS = 8                # in an ack subject without domain and account
    SHORT_BEFORE = 3              # of those, before the consumer
    LONG_DOTS_MIN = 10            # in an ack subject with domain and account
    LONG_BEFORE = 5

cdef const char* VERSION = b"NATS/1.0\r\n"
cdef const char* ACK = b"$JS.ACK."
cdef const char* SPECIAL = b"\r\nNats-"


cdef class SourceCursor:
    """Position in one origin; owned by `Progress`."""


cdef class CopyLane(Lane):
    def __cinit__(self, *, StreamLane stream not None, SourceCursor place not None, host,
                  LaneListener listener not None):
        self.stream = stream
        self.place = place
        self.host = host
        self.listener = listener

    def begin(self, str consumer not None, tuple note) -> None:
        """Take what this consumer delivers; `note` has the parts of the source header, None for a
        mirror."""
        self.delivered_by = f"{consumer}.1.".encode("utf-8", "surrogateescape")
        if note is not None:
            self.note_head, self.note_tail, self.note_end = note

    def take_results(self) -> int:
        """Return the number of messages taken since the last call."""
        taken, self.taken = self.taken, 0
        return taken

    cdef bint take(self, Message* msg) noexcept:
        cdef char header[HEADER_BYTES_MAX]
        cdef Delivered delivered
        cdef size_t n
        if (not self.is_open or self.delivered_by is None or not self.read(msg, &delivered)
                or self.host.cannot_store):
            return False
        if self.note_head is None:
            if delivered.seq <= self.stream.log.last_seq:
                return False
            self.store(msg, &delivered, msg.body, msg.hdr_len)
            return delivered.seq == self.place.seq
        n = self.write_header(msg, delivered.seq, header, HEADER_BYTES_MAX)
        if n == 0:
            return False
        self.store(msg, &delivered, header, n)
        return delivered.seq == self.place.seq

    cdef bint read(self, Message* msg, Delivered* delivered) noexcept:
        """Parse the ack subject; False unless this is the next expected delivery and a plain
        message."""
        cdef size_t n = PyBytes_GET_SIZE(self.delivered_by)
        cdef const char* at = consumer_in(msg)
        cdef const char* end = msg.reply + msg.reply_len
        if at == NULL or <size_t>(end - at) <= n or (msg.hdr_len and not is_plain(msg)):
            return False
        if memcmp(at, PyBytes_AS_STRING(self.delivered_by), n) != 0:
            return False
        at = number(at + n, end, &delivered.seq)
        at = number(at, end, &delivered.consumer_seq)
        at = number(at, end, &delivered.ts)
        at = number(at, end, &delivered.num_undelivered)
        return (at != NULL and delivered.consumer_seq == self.place.consumer_seq + 1
                and self.place.seq < delivered.seq <= SEQ_MAX and delivered.ts <= SEQ_MAX)

    cdef size_t write_header(self, Message* msg, uint64_t seq, char* at, size_t cap) noexcept:
        """Write the header with the source header line; return its length, 0 if it is too long."""
        cdef const char* start = at
        cdef size_t kept = msg.hdr_len - 2 if msg.hdr_len else VERSION_LEN + 2
        cdef size_t need = (kept + PyBytes_GET_SIZE(self.note_head) + NUMBER_DIGITS_MAX + 1
                            + PyBytes_GET_SIZE(self.note_tail) + msg.subject_len
                            + PyBytes_GET_SIZE(self.note_end))
        if need > cap:
            return 0
        memcpy(at, msg.body if msg.hdr_len else VERSION, kept)
        at = put_bytes(at + kept, self.note_head)
        at += put_number(at, seq)
        at = put_bytes(at, self.note_tail)
        memcpy(at, msg.subject, msg.subject_len)
        at = put_bytes(at + msg.subject_len, self.note_end)
        return at - start

    cdef void store(self, Message* msg, Delivered* delivered, const char* header,
                    size_t header_len) noexcept:
        """Append the message, unless it needs a decision that only the Python path can make. The
        cursor advances only if the message was stored."""
        cdef StreamLane stream = self.stream
        cdef bint is_mirror = self.note_head is None
        cdef size_t payload_len = msg.size - msg.hdr_len
        cdef int64_t size = stream.log.size_of(msg.subject_len, header_len, payload_len)
        cdef int64_t ts = <int64_t>delivered.ts if is_mirror else stream.router.turn.wall_ns
        if header_len + payload_len > stream.payload_max or not stream.fits(msg, size):
            return
        ts = max(ts, stream.log.last_ts_ns)
        stream.log.put(msg.subject, msg.subject_len, header, header_len, msg.body + msg.hdr_len,
                       payload_len, ts, delivered.seq if is_mirror else 0, 0)
        stream.ids.note_last(NULL, 0)
        stream.room -= size
        stream.taken += 1
        stream.enforce(msg, ts)
        self.taken += 1
        self.heard_ns = stream.router.turn.wall_ns
        self.place.seq = delivered.seq
        self.place.consumer_seq = delivered.consumer_seq
        self.place.lag = delivered.num_undelivered - 1 if delivered.num_undelivered else 0


cdef bint is_plain(Message* msg) noexcept nogil:
    """Return whether the header has no status and no stream key."""
    if msg.hdr_len <= VERSION_LEN + 4 or memcmp(msg.body, VERSION, VERSION_LEN + 2) != 0:
        return False
    return memmem(msg.body, msg.hdr_len, SPECIAL, SPECIAL_LEN) == NULL


cdef const char* consumer_in(Message* msg) noexcept nogil:
    """Return where an ack subject of either form names the consumer; NULL if it is invalid."""
    cdef uint32_t dots = 0, before = 0
    cdef const char* at = msg.reply
    cdef size_t i
    if msg.reply_len < ACK_LEN or memcmp(at, ACK, ACK_LEN) != 0:
        return NULL
    for i in range(msg.reply_len):
        dots += at[i] == c'.'
    if dots == SHORT_DOTS:
        before = SHORT_BEFORE
    elif dots >= LONG_DOTS_MIN:
        before = LONG_BEFORE
    else:
        return NULL
    while before:
        before -= at[0] == c'.'
        at += 1
    return at


cdef const char* number(const char* at, const char* end, uint64_t* value) noexcept nogil:
    """Parse digits up to a dot or the end and skip the dot; NULL if there is anything else."""
    cdef const char* start = at
    value[0] = 0
    if at == NULL:
        return NULL
    while at < end and c'0' <= at[0] <= c'9':
        value[0] = 10 * value[0] + (at[0] - c'0')
        at += 1
    if at == start or at - start > NUMBER_DIGITS_MAX or (at < end and at[0] != c'.'):
        return NULL
    return at + 1


cdef inline char* put_bytes(char* at, bytes text) noexcept:
    memcpy(at, PyBytes_AS_STRING(text), PyBytes_GET_SIZE(text))
    return at + PyBytes_GET_SIZE(text)
