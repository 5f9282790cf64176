"""The ack lane: parses plain acks in C and collects them per consumer.

An ack is plain if it has no reply subject and only acknowledges its message. At the end of the turn
the consumer takes all collected acks at once. Every other ack, and all that follows it in the turn,
goes to the callback in order; the callback first takes what was collected before.

An ack subject is `$JS.ACK.<stream>.<consumer>.<delivered>.<stream seq>.<consumer seq>.<time>.
<pending>`; the v2 form has `<domain>.<account hash>` before the stream and may have more tokens at
the end.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp

from penstock.subjects.trie_nodes cimport xrealloc

cdef enum:
    V1_TOKENS = 9
    V2_TOKENS_MIN = 11
    TOKENS_KEPT = 10         # tokens whose start positions are recorded
    DIGITS_MAX = 19          # of a sequence; longer ones are left to the Python path


cdef class AckBox:
    def __cinit__(self, str stream not None, str consumer not None):
        self.stream = stream
        self.consumer = consumer
        self.key = key_of(stream, consumer)

    def __dealloc__(self):
        free(self.spans)

    cdef void add(self, uint64_t seq, uint64_t consumer_seq) noexcept nogil:
        cdef AckSpan* span
        if self.count:
            span = self.spans + self.count - 1
            if seq == span.last + 1 and consumer_seq == span.consumer_seq + 1:
                span.last = seq
                span.consumer_seq = consumer_seq
                return
        if self.count == self.cap:
            self.cap = 2 * self.cap + 8
            self.spans = <AckSpan*>xrealloc(self.spans, self.cap * sizeof(AckSpan))
        span = self.spans + self.count
        span.first = span.last = seq
        span.consumer_seq = consumer_seq
        self.count += 1

    def take(self) -> list:
        """Return and clear the collected acks in order: (first and last stream sequence, consumer
        sequence of the last). Both rise by one within a span."""
        cdef uint32_t i
        taken = [(self.spans[i].first, self.spans[i].last, self.spans[i].consumer_seq)
                 for i in range(self.count)]
        self.count = 0
        return taken


@cython.final
cdef class AckLane(Lane):
    def __cinit__(self, *, LaneListener listener not None, str scope not None):
        self.listener = listener
        self.scope = scope.encode("utf-8", "surrogateescape")
        self.boxes = {}
        self.filled = []

    def open(self, str stream not None, str consumer not None) -> None:
        """Start to collect the plain acks of a consumer."""
        cdef bytes key = key_of(stream, consumer)
        if key not in self.boxes:
            self.boxes[key] = AckBox(stream, consumer)

    def close(self, str stream not None, str consumer not None) -> None:
        """Stop collecting for a consumer that was deleted or must see every ack."""
        self.latest = None
        self.boxes.pop(key_of(stream, consumer), None)

    def __len__(self) -> int:
        """Return how many consumers it collects for."""
        return len(self.boxes)

    def take_filled(self) -> list:
        """Return the boxes that contain acks; the caller empties each."""
        filled, self.filled = self.filled, []
        return filled

    cdef bint take(self, Message* msg) noexcept:
        cdef size_t starts[TOKENS_KEPT + 1]
        cdef const char* key
        cdef AckBox box
        cdef uint64_t seq, consumer_seq
        cdef int at
        if msg.reply_len or msg.hdr_len or not is_plain(msg.body, msg.size):
            return False
        at = stream_token(msg.subject, msg.subject_len, starts)
        if at == 0 or (at == 4 and not self.is_ours(msg.subject + starts[2],
                                                    starts[4] - starts[2] - 1)):
            return False
        seq = number_at(msg.subject + starts[at + 3], starts[at + 4] - starts[at + 3] - 1)
        consumer_seq = number_at(msg.subject + starts[at + 4], starts[at + 5] - starts[at + 4] - 1)
        if seq == 0 or consumer_seq == 0:
            return False
        key = msg.subject + starts[at]
        box = self.find(key, starts[at + 2] - starts[at] - 1)
        if box is None:
            return False
        if box.count == 0:
            self.filled.append(box)
        box.add(seq, consumer_seq)
        return True

    cdef bint is_ours(self, const char* scope, size_t n) noexcept:
        return (<size_t>PyBytes_GET_SIZE(self.scope) == n
                and memcmp(PyBytes_AS_STRING(self.scope), scope, n) == 0)

    cdef AckBox find(self, const char* key, size_t n):
        cdef AckBox box = self.latest
        if (box is not None and <size_t>PyBytes_GET_SIZE(box.key) == n
                and memcmp(PyBytes_AS_STRING(box.key), key, n) == 0):
            return box
        box = self.boxes.get(PyBytes_FromStringAndSize(key, n))
        if box is not None:
            self.latest = box
        return box


cdef bytes key_of(str stream, str consumer):
    return f"{stream}.{consumer}".encode("utf-8", "surrogateescape")


cdef bint is_plain(const char* body, size_t n) noexcept nogil:
    return (n == 0 or (n == 4 and memcmp(body, b"+ACK", 4) == 0)
            or (n == 3 and memcmp(body, b"+OK", 3) == 0))


cdef int stream_token(const char* subject, size_t n, size_t* starts) noexcept nogil:
    """Return which token names the stream, and the token positions; 0 if it is no ack subject."""
    cdef size_t i
    cdef int tokens = 1
    starts[0] = 0
    for i in range(n):
        if subject[i] == c'.':
            if tokens <= TOKENS_KEPT:
                starts[tokens] = i + 1
            tokens += 1
    if tokens == V1_TOKENS:
        return 2
    return 4 if tokens >= V2_TOKENS_MIN else 0


cdef uint64_t number_at(const char* digits, size_t n) noexcept nogil:
    """Parse a sequence; 0 if it is invalid or may overflow."""
    cdef uint64_t value = 0
    cdef size_t i
    if n > DIGITS_MAX:
        return 0
    for i in range(n):
        if digits[i] < c'0' or digits[i] > c'9':
            return 0
        value = 10 * value + <uint64_t>(digits[i] - c'0')
    return value
