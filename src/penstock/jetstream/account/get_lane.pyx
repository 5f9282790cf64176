"""The direct-get lane: replies with the last message of a subject in C, without Python calls.

Takes `$JS.API.DIRECT.GET.<stream>.<subject>` without body or headers, for a literal subject whose
message is in memory; a KV get is such a request. Every other API request goes to the callback, and
so do the requests after it in the same turn. `direct_get` defines the behaviour of both; a test
compares them.

Reads only messages that the store makes visible to readers. `DirectReads` calls `open` for each
stream that may be read this way; the server calls `clear` when that set may have changed.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memchr, memcmp, memcpy

from penstock.broker.router cimport put_number
from penstock.records.record_codec cimport MESSAGE, read_record
from penstock.store.index.block_list cimport Block, Entry
from penstock.store.index.seq_list cimport seqs_at_most
from penstock.store.index.subject_index cimport Subject
from penstock.subjects.trie_nodes cimport has_empty_token, has_wildcard, xrealloc

cdef enum:
    PREFIX_LEN = 19
    LINES_BYTES_MAX = 256       # of a reply, without the copied parts and the stream's name
    ANSWER_KEPT_BYTES = 65536   # buffer size kept between two replies
    FRACTION_DIGITS = 9
    TIME_LEN = 19               # length of a time without its fraction
    DAY_SECONDS = 86400

cdef enum Finding:
    FOUND = 0
    MISSING = 1
    ELSEWHERE = 2               # leave to the callback: cold, damaged, without a time

cdef const char* PREFIX = b"$JS.API.DIRECT.GET."
cdef const char* BARE = b"NATS/1.0\r\n"
cdef int64_t SECOND_NS = 1_000_000_000
cdef bytes NOT_FOUND = b"NATS/1.0 404 Message Not Found\r\n\r\n"


cdef class GetSource:
    def __cinit__(self, MessageLog log not None, bytes origin not None):
        self.log = log
        self.origin = origin


@cython.final
cdef class GetLane(Lane):
    def __cinit__(self, *, Router router not None, SubList interest not None,
                  LaneListener listener not None):
        self.router = router
        self.interest = interest
        self.listener = listener
        self.quiet = True
        self.sources = {}
        self.second = -1

    def __dealloc__(self):
        free(self.answer)

    def open(self, str stream not None, MessageLog log not None) -> None:
        """Serve reads of this stream from now on."""
        name = stream.encode("utf-8", "surrogateescape")
        origin = b"Nats-Stream: %b\r\nNats-Subject: " % name
        self.sources[name] = GetSource(log, origin)

    def clear(self) -> None:
        """Serve no stream until `open` is called again: streams have changed."""
        self.sources.clear()
        self.latest = self.latest_name = None

    def __len__(self) -> int:
        """Return the number of streams it serves."""
        return len(self.sources)

    cdef bint take(self, Message* msg) noexcept:
        cdef const char* name = msg.subject + PREFIX_LEN
        cdef const char* end = msg.subject + msg.subject_len
        cdef const char* subject
        cdef GetSource source
        cdef RecordView view
        cdef int finding
        if msg.subject_len <= PREFIX_LEN or memcmp(msg.subject, PREFIX, PREFIX_LEN) != 0:
            return False
        if msg.size or not msg.reply_len:
            return False
        subject = <const char*>memchr(name, c'.', end - name)
        if subject == NULL:
            return False
        source = self.source_of(name, subject - name)
        subject += 1
        if source is None or has_empty_token(subject, end - subject):
            return False
        if has_wildcard(subject, end - subject):
            return False
        finding = self.find(source, subject, end - subject, &view)
        if finding == FOUND:
            self.send(msg, source, &view)
        elif finding == MISSING:
            self.send_status(msg)
        return finding != ELSEWHERE

    cdef GetSource source_of(self, const char* name, size_t n):
        if (self.latest_name is not None and <size_t>PyBytes_GET_SIZE(self.latest_name) == n
                and memcmp(PyBytes_AS_STRING(self.latest_name), name, n) == 0):
            return self.latest
        asked = PyBytes_FromStringAndSize(name, n)
        cdef GetSource source = self.sources.get(asked)
        if source is not None:
            self.latest_name = asked
            self.latest = source
        return source

    cdef int find(self, GetSource source, const char* subject, size_t n,
                  RecordView* view) noexcept nogil:
        cdef Subject* known = source.log.subjects.find(subject, n)
        cdef Block* block = NULL
        cdef Entry* entry
        cdef uint64_t seq
        if known == NULL:
            return MISSING
        seq = seqs_at_most(&known.seqs, source.log.visible_max)
        if seq == 0:
            return MISSING
        entry = source.log.entry_at(seq, &block)
        if entry == NULL or block.image == NULL:
            return ELSEWHERE
        if read_record(block.image + entry.offset, entry.length, &block.keys, view,
                       not block.verified) != 0:
            return ELSEWHERE
        return FOUND if view.kind == MESSAGE and view.ts > 0 else ELSEWHERE

    # -- replies

    cdef void send(self, Message* request, GetSource source, RecordView* view) noexcept:
        cdef Message msg
        cdef char sizes[64]
        cdef size_t origin_len = PyBytes_GET_SIZE(source.origin), n
        cdef char* at = self.room(view.header_len + origin_len + view.subject_len
                                  + LINES_BYTES_MAX + view.payload_len)
        msg.body = at
        if view.header_len > 2:
            at = put(at, view.header, view.header_len - 2)   # without the empty line at its end
        else:
            at = put(at, BARE, 10)
        at = put(at, PyBytes_AS_STRING(source.origin), origin_len)
        at = put(at, view.subject, view.subject_len)
        at = put(at, b"\r\nNats-Sequence: ", 17)
        at += put_number(at, view.seq)
        at = put(at, b"\r\nNats-Time-Stamp: ", 19)
        at = self.put_time(at, view.ts)
        at = put(at, b"\r\n\r\n", 4)
        msg.hdr_len = at - msg.body
        at = put(at, view.payload, view.payload_len)
        msg.size = at - msg.body
        put(at, b"\r\n", 2)
        n = put_number(sizes, msg.hdr_len)
        sizes[n] = c' '
        n += 1
        n += put_number(sizes + n, msg.size)
        memcpy(sizes + n, b"\r\n", 2)
        msg.sizes = sizes
        msg.sizes_len = n + 2
        msg.subject = request.reply
        msg.subject_len = request.reply_len
        msg.reply = NULL
        msg.reply_len = 0
        self.router.route(self.interest, NULL, &msg)
        if self.answer_cap > ANSWER_KEPT_BYTES:
            free(self.answer)
            self.answer = NULL
            self.answer_cap = 0

    cdef void send_status(self, Message* request) noexcept:
        cdef Message msg
        cdef char* at = self.room(LINES_BYTES_MAX)
        cdef size_t n = PyBytes_GET_SIZE(NOT_FOUND)
        msg.body = at
        memcpy(at, PyBytes_AS_STRING(NOT_FOUND), n)
        memcpy(at + n, b"\r\n", 2)
        msg.size = msg.hdr_len = n
        msg.sizes = b"34 34\r\n"
        msg.sizes_len = 7
        msg.subject = request.reply
        msg.subject_len = request.reply_len
        msg.reply = NULL
        msg.reply_len = 0
        self.router.route(self.interest, NULL, &msg)

    cdef char* room(self, size_t n) noexcept nogil:
        if n > self.answer_cap:
            self.answer = <char*>xrealloc(self.answer, n)
            self.answer_cap = n
        return self.answer

    cdef char* put_time(self, char* at, int64_t ts) noexcept nogil:
        """Write a time as RFC 3339 in UTC, the fraction without trailing zeros."""
        cdef int64_t second = ts // SECOND_NS, fraction = ts % SECOND_NS
        cdef int i
        if second != self.second:
            put_second(self.second_text, second)
            self.second = second
        at = put(at, self.second_text, TIME_LEN)
        if fraction:
            at[0] = c'.'
            for i in range(FRACTION_DIGITS, 0, -1):
                at[i] = <char>(c'0' + fraction % 10)
                fraction //= 10
            at += FRACTION_DIGITS
            while at[0] == c'0':
                at -= 1
            at += 1
        at[0] = c'Z'
        return at + 1


cdef inline char* put(char* at, const char* text, size_t n) noexcept nogil:
    memcpy(at, text, n)
    return at + n


cdef void put_digits(char* at, int64_t value, int n) noexcept nogil:
    cdef int i
    for i in range(n - 1, -1, -1):
        at[i] = <char>(c'0' + value % 10)
        value //= 10


cdef void put_second(char* at, int64_t second) noexcept nogil:
    """Write YYYY-MM-DDTHH:MM:SS for a second since 1970. Counts years from March, so that a leap
    day is the last day of its year."""
    cdef int64_t day = second // DAY_SECONDS + 719468, left = second % DAY_SECONDS
    cdef int64_t era = day // 146097, of_era = day % 146097
    cdef int64_t year = (of_era - of_era // 1460 + of_era // 36524 - of_era // 146096) // 365
    cdef int64_t of_year = of_era - (365 * year + year // 4 - year // 100)
    cdef int64_t month = (5 * of_year + 2) // 153
    memcpy(at, b"0000-00-00T00:00:00", TIME_LEN)
    put_digits(at + 8, of_year - (153 * month + 2) // 5 + 1, 2)
    month = month + 3 if month < 10 else month - 9
    put_digits(at, year + 400 * era + (month <= 2), 4)
    put_digits(at + 5, month, 2)
    put_digits(at + 11, left // 3600, 2)
    put_digits(at + 14, left // 60 % 60, 2)
    put_digits(at + 17, left % 60, 2)
