"""Parser for the bytes a server sends: gathers stream records as columns, returns the rest singly.

Deliveries of the followed subscription are appended to columns without a Python object per message.
Everything else (replies, flow control, heartbeats, PING) comes out of `next` one at a time, in wire
order, so the caller knows which records preceded it.

Invariant: records are gathered only while the consumer sequence increases by one. The first
delivery that breaks the sequence is reported as GAP, and no further record is gathered until
`follow` is called again.

`BulkConnection` calls `space`, reads into it, calls `filled`, then calls `next` until it returns
None. It calls `take` to get the gathered records as a batch.
"""

from cpython.buffer cimport PyBUF_WRITE
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memmove

from penstock.bulk.record_batch import Batch

cdef enum:
    ROOM_BYTES = 262144
    ROOM_LEFT_MIN = 65536  # least free space offered for one read
    LINE_BYTES_MAX = 1048576  # INFO lists every server of a cluster
    FIELDS_MAX = 6
    TOKENS_MAX = 13
    PLAIN_TOKENS = 9  # $JS.ACK.<stream>.<consumer> and five numbers
    DOMAIN_TOKENS = 11  # with domain and account before the stream
    NUMBERS_AT = 4
    DOMAIN_NUMBERS_AT = 6
    ACK_PREFIX_BYTES = 8
    NUMBER_DIGITS_MAX = 19  # a number of this many digits fits 64 bits
    POSITION_NUMBERS = 5
    COLUMN_BYTES = 65536

# Kinds of `ServerItem` that next() returns.
MESSAGE = 1
PING = 2
PONG = 3
INFO = 4
ERROR = 5
FULL = 6  # a batch is ready to be taken; no record is lost
CAUGHT_UP = 7  # nothing is pending after the last record
PAST_END = 8  # a record after the last one wanted; it is dropped
GAP = 9
UNKNOWN_POSITION = 10  # the reply subject of a record carries no sequence
OK = 11


class WireError(Exception):
    """The bytes received are not valid NATS protocol."""


cdef class ServerItem:
    """Anything but a record: a message, a control line, or a mark between records."""

    def __repr__(self):
        return f"ServerItem({self.kind}, {self.subject!r}, {self.header!r}, {self.payload!r})"


cdef class WireReader:
    """Parser state of one connection.

    `frame_bytes_max` bounds one message. `records_max` and `bytes_max` bound a batch; its last
    message may exceed `bytes_max`.
    """

    def __cinit__(self, *, size_t frame_bytes_max, Py_ssize_t records_max, size_t bytes_max):
        if records_max < 1 or bytes_max < 1 or bytes_max + frame_bytes_max >= <size_t> 1 << 31:
            raise ValueError("a batch must hold a record, and less than 2 GiB")
        self.frame_bytes_max = frame_bytes_max
        self.records_max = records_max
        self.bytes_max = bytes_max
        self.size = ROOM_BYTES
        self.room = <char*> malloc(self.size)
        self.seqs = <int64_t*> malloc(records_max * sizeof(int64_t))
        self.times = <int64_t*> malloc(records_max * sizeof(int64_t))
        if self.room == NULL or self.seqs == NULL or self.times == NULL:
            raise MemoryError
        open_column(&self.subjects, records_max)
        open_column(&self.headers, records_max)
        open_column(&self.payloads, records_max)

    def __dealloc__(self):
        free(self.room)
        free(self.seqs)
        free(self.times)
        close_column(&self.subjects)
        close_column(&self.headers)
        close_column(&self.payloads)

    def follow(self, long long sid, *, int64_t stop_seq=0, bint mark_caught_up=False):
        """Gather deliveries of this subscription, starting with the first delivery of a new
        consumer.

        If `stop_seq` is set, a batch ends at that sequence and later records are reported as
        PAST_END. With `mark_caught_up`, the first record with nothing pending after it is followed
        by CAUGHT_UP.
        """
        self.sid = sid
        self.expected = 1
        self.stop_seq = stop_seq
        self.names_bytes = 0
        self.marking = mark_caught_up
        self.last_seq = self.delivered_bytes = 0

    @property
    def gathered(self):
        """Number of records waiting to be taken."""
        return self.count

    @property
    def delivered(self):
        """Number of deliveries of the followed consumer so far."""
        return self.expected - 1

    def space(self):
        """Return the buffer for the next bytes; it is valid until the next call of any method."""
        cdef size_t least = ROOM_LEFT_MIN
        if self.start == self.end:
            self.start = self.end = 0
        if self.wanted > self.end - self.start:
            least = max(least, self.wanted - (self.end - self.start))
        if self.size - self.end < least and self.start > 0:
            memmove(self.room, self.room + self.start, self.end - self.start)
            self.end -= self.start
            self.start = 0
        if self.size - self.end < least:
            self.grow(self.end + least)
        return PyMemoryView_FromMemory(
            self.room + self.end, <Py_ssize_t> (self.size - self.end), PyBUF_WRITE
        )

    cdef int grow(self, size_t size) except -1:
        cdef char* larger = <char*> realloc(self.room, size)
        if larger == NULL:
            raise MemoryError
        self.room = larger
        self.size = size
        return 0

    def filled(self, size_t count):
        """Record that `count` bytes were written to the buffer that `space` returned."""
        if count > self.size - self.end:
            raise ValueError("more bytes than there was space for")
        self.end += count

    def next(self):
        """Return the next item that is not a record, or None if more bytes are needed."""
        cdef Step step
        with nogil:
            step = self.advance()
        if step == WANTING:
            return None
        if step == BROKEN:
            raise WireError("the server sent a line that is no message")
        if step == NO_MEMORY:
            raise MemoryError
        if step == STEP_LINE:
            return self.control_item()
        if step == STEP_MESSAGE:
            return message_item(&self.delivery, MESSAGE)
        if step in (STEP_GAP, STEP_UNKNOWN):
            self.sid = 0
            return message_item(&self.delivery, step)
        return mark(step)

    def take(self):
        """Return the records gathered so far, as a batch that owns its bytes."""
        batch = Batch(
            self.count,
            self.pending,
            PyBytes_FromStringAndSize(<char*> self.seqs, self.count * sizeof(int64_t)),
            PyBytes_FromStringAndSize(<char*> self.times, self.count * sizeof(int64_t)),
            column_data(&self.subjects),
            column_offsets(&self.subjects, self.count),
            column_data(&self.headers),
            column_offsets(&self.headers, self.count),
            column_data(&self.payloads),
            column_offsets(&self.payloads, self.count),
        )
        self.count = 0
        self.subjects.used = self.headers.used = self.payloads.used = 0
        return batch

    cdef Step advance(self) noexcept nogil:
        cdef const char* line
        cdef const char* newline
        cdef Step step
        while self.start < self.end:
            if self.is_full():
                return STEP_FULL
            line = self.room + self.start
            if self.wanted > self.end - self.start:
                return WANTING
            newline = <const char*> memchr(line, c"\n", self.end - self.start)
            if newline == NULL:
                return BROKEN if self.end - self.start > LINE_BYTES_MAX else WANTING
            if line[0] != c"M" and line[0] != c"H":
                self.wanted = newline - line + 1
                return STEP_LINE
            step = self.read_delivery(line, newline - line + 1)
            if step != STEP_MESSAGE:
                return step
            self.start += self.wanted
            self.wanted = 0
            step = self.sort_out()
            if step != WANTING:
                return step
        return STEP_FULL if self.is_full() else WANTING

    cdef bint is_full(self) noexcept nogil:
        return (
            self.count >= self.records_max
            or self.subjects.used + self.headers.used + self.payloads.used >= self.bytes_max
            or self.count > 0 and 0 < self.stop_seq <= self.seqs[self.count - 1]
        )

    cdef Step read_delivery(self, const char* line, size_t line_bytes) noexcept nogil:
        """Set `delivery` if the message is complete; set `wanted` to its length in either case."""
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
        if total < 0 or header < 0 or header > total or total > <long long> self.frame_bytes_max:
            return BROKEN
        self.wanted = line_bytes + total + 2
        if self.wanted > self.end - self.start:
            return WANTING
        self.delivery.subject = fields[1]
        self.delivery.sid = number_in(fields[2].data, fields[2].size)
        self.delivery.reply.data = line
        self.delivery.reply.size = 0
        if count == 4 + sizes:
            self.delivery.reply = fields[3]
        self.delivery.header.data = line + line_bytes
        self.delivery.header.size = header
        self.delivery.payload.data = line + line_bytes + header
        self.delivery.payload.size = total - header
        return STEP_MESSAGE

    cdef Step sort_out(self) noexcept nogil:
        """Gather or drop a delivery; return WANTING if nothing is left to report.

        Drops deliveries of a subscription that is no longer followed.
        """
        cdef int64_t position[5]  # deliveries, stream and consumer sequence, time, pending
        cdef const Span* reply = &self.delivery.reply
        if (
            reply.size <= ACK_PREFIX_BYTES
            or memcmp(reply.data, b"$JS.ACK.", ACK_PREFIX_BYTES) != 0
        ):
            return STEP_MESSAGE
        if self.delivery.sid != self.sid:
            return WANTING
        if not self.read_known_position(reply, position):
            if not read_position(reply, position):
                return STEP_UNKNOWN
            self.know_names(reply)
        if position[2] != self.expected:
            self.gap_at = position[2]
            return STEP_GAP
        self.expected += 1
        self.last_seq = position[1]
        self.delivered_bytes += (
            self.delivery.subject.size + self.delivery.header.size + self.delivery.payload.size
        )
        if self.stop_seq > 0 and position[1] > self.stop_seq:
            return STEP_PAST_END
        if not self.gather(position):
            return NO_MEMORY
        if self.marking and position[4] == 0:
            self.marking = False
            return STEP_CAUGHT_UP
        return WANTING

    cdef void know_names(self, const Span* reply) noexcept nogil:
        """Remember the part of the reply subject before the numbers.

        Stream and consumer are the same in every delivery of a subscription, so this part is parsed
        once and then only compared.
        """
        cdef size_t size = reply.size
        cdef int dots = 0
        while size > 0 and dots < POSITION_NUMBERS:
            size -= 1
            dots += reply.data[size] == c"."
        size += 1
        self.names_bytes = 0
        if size <= NAMES_BYTES_MAX and count_of(reply.data, size, c".") == NUMBERS_AT:
            memcpy(self.names, reply.data, size)
            self.names_bytes = size

    cdef bint read_known_position(self, const Span* reply, int64_t* position) noexcept nogil:
        """Read the five numbers after the known names; return False if the names or the format
        differ."""
        cdef const char* at = reply.data + self.names_bytes
        cdef const char* end = reply.data + reply.size
        cdef const char* start
        cdef uint64_t value
        cdef unsigned char digit
        cdef int index
        if (
            self.names_bytes == 0
            or reply.size <= self.names_bytes
            or memcmp(reply.data, self.names, self.names_bytes) != 0
        ):
            return False
        for index in range(POSITION_NUMBERS):
            start = at
            value = 0
            while at < end:
                digit = <unsigned char> (at[0] - c"0")
                if digit > 9:
                    break
                value = value * 10 + digit
                at += 1
            if at == start or at - start > NUMBER_DIGITS_MAX or value > <uint64_t> INT64_MAX:
                return False
            position[index] = <int64_t> value
            if index < POSITION_NUMBERS - 1:
                if at == end or at[0] != c".":
                    return False
                at += 1
        return at == end

    cdef bint gather(self, const int64_t* position) noexcept nogil:
        if not (
            append(&self.subjects, self.count, &self.delivery.subject)
            and append(&self.headers, self.count, &self.delivery.header)
            and append(&self.payloads, self.count, &self.delivery.payload)
        ):
            return False
        self.seqs[self.count] = position[1]
        self.times[self.count] = position[3]
        self.pending = position[4]
        self.count += 1
        return True

    cdef object control_item(self):
        """Consume a control line and return it as `ServerItem`."""
        cdef const char* line = self.room + self.start
        cdef bytes line_text = line[: self.wanted].rstrip(b"\r\n")
        self.start += self.wanted
        self.wanted = 0
        verb = line_text.partition(b" ")[0].upper()
        if verb == b"PING":
            return mark(PING)
        if verb == b"PONG":
            return mark(PONG)
        if verb == b"INFO":
            return server_item(INFO, line_text[len(b"INFO "):])
        if verb == b"-ERR":
            return server_item(ERROR, line_text[len(b"-ERR "):].strip(b"'"))
        if verb == b"+OK":
            return mark(OK)
        raise WireError("the server sent a line that is no message")


cdef object mark(int kind):
    return server_item(kind, b"")


cdef object server_item(int kind, bytes payload):
    cdef ServerItem item = ServerItem.__new__(ServerItem)
    item.kind = kind
    item.subject = item.reply = ""
    item.header = b""
    item.payload = payload
    return item


cdef object message_item(const Delivery* delivery, int kind):
    cdef ServerItem item = server_item(kind, delivery.payload.data[: delivery.payload.size])
    item.sid = delivery.sid
    item.subject = delivery.subject.data[: delivery.subject.size].decode("utf-8", "replace")
    item.reply = delivery.reply.data[: delivery.reply.size].decode("utf-8", "replace")
    item.header = delivery.header.data[: delivery.header.size]
    return item


cdef int split(const char* line, size_t size, Span* fields) noexcept nogil:
    """Split a line into fields at spaces, without its CRLF."""
    cdef const char* end = line + size - 1
    cdef const char* stop
    cdef int count = 0
    if end > line and (end - 1)[0] == c"\r":
        end -= 1
    while line < end and count < FIELDS_MAX:
        stop = <const char*> memchr(line, c" ", end - line)
        if stop == NULL:
            stop = end
        if stop > line:
            fields[count].data = line
            fields[count].size = stop - line
            count += 1
        line = stop + 1
    return count


cdef bint read_position(const Span* reply, int64_t* position) noexcept nogil:
    """Read the five numbers of an ack subject, in their order."""
    cdef int64_t numbers[TOKENS_MAX]
    cdef const char* at = reply.data
    cdef const char* end = reply.data + reply.size
    cdef const char* dot
    cdef int count = 0
    cdef int first
    cdef int index
    while at < end and count < TOKENS_MAX:
        dot = <const char*> memchr(at, c".", end - at)
        if dot == NULL:
            dot = end
        if count >= NUMBERS_AT:
            numbers[count] = number_in(at, dot - at)
        at = dot + 1
        count += 1
    if count != PLAIN_TOKENS and count != DOMAIN_TOKENS and count != DOMAIN_TOKENS + 1:
        return False
    first = NUMBERS_AT if count == PLAIN_TOKENS else DOMAIN_NUMBERS_AT
    for index in range(POSITION_NUMBERS):
        position[index] = numbers[first + index]
        if position[index] < 0:
            return False
    return True


cdef int count_of(const char* data, size_t size, char wanted) noexcept nogil:
    cdef size_t index
    cdef int count = 0
    for index in range(size):
        count += data[index] == wanted
    return count


cdef long long number_in(const char* data, size_t size) noexcept nogil:
    """Return the number these bytes spell; -1 if they are not digits or exceed 63 bits."""
    cdef uint64_t value = 0
    cdef size_t index
    if size == 0 or size > NUMBER_DIGITS_MAX:
        return -1
    for index in range(size):
        if not c"0" <= data[index] <= c"9":
            return -1
        value = value * 10 + (data[index] - c"0")
    return <long long> value if value <= <uint64_t> INT64_MAX else -1


cdef int open_column(Column* column, Py_ssize_t records_max) except -1:
    column.used = 0
    column.size = COLUMN_BYTES
    column.data = <char*> malloc(COLUMN_BYTES)
    column.offsets = <int32_t*> malloc((records_max + 1) * sizeof(int32_t))
    if column.data == NULL or column.offsets == NULL:
        raise MemoryError
    column.offsets[0] = 0
    return 0


cdef void close_column(Column* column) noexcept:
    free(column.data)
    free(column.offsets)


cdef bint append(Column* column, Py_ssize_t count, const Span* span) noexcept nogil:
    cdef size_t needed = column.used + span.size
    cdef char* larger
    if needed > column.size:
        larger = <char*> realloc(column.data, max(needed, 2 * column.size))
        if larger == NULL:
            return False
        column.data = larger
        column.size = max(needed, 2 * column.size)
    memcpy(column.data + column.used, span.data, span.size)
    column.used = needed
    column.offsets[count + 1] = <int32_t> needed
    return True


cdef object column_data(Column* column):
    return PyBytes_FromStringAndSize(column.data, column.used)


cdef object column_offsets(Column* column, Py_ssize_t count):
    return PyBytes_FromStringAndSize(<char*> column.offsets, (count + 1) * sizeof(int32_t))
