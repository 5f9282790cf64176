"""The delivery pump: a run of first deliveries in C, from block images into the subscribers'
outboxes.

It handles first deliveries of whole messages, or of headers only: all messages from a sequence on,
or a given row of sequences. `Delivery` decides the length of a run and its takers before, and
records the result of `run` after. Runs and single deliveries have the same result; a property test
checks this. A run stops before a message that it cannot read (not in memory, damaged, or removed
from the row) and leaves it to `Delivery`.

Ack subjects are written digit by digit after a prefix; no Python object is created per message. The
pump only writes to outboxes and does not change the log.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcpy, memset, strlen

from penstock.broker.router cimport Message, put_number
from penstock.records.record_codec cimport MESSAGE, read_record
from penstock.store.index.block_list cimport Block, Entry
from penstock.store.index.message_log cimport FILTERS_FEW_MAX
from penstock.store.index.seq_list cimport seqs_at_least
from penstock.store.index.subject_index cimport Subject, subject_text
from penstock.subjects.trie_nodes cimport has_wildcard, xalloc, xrealloc

from typing import NamedTuple

from penstock.subjects.trie import Subscription

cdef enum:
    NUMBERS_BYTES_MAX = 160    # all numbers of a delivery line, and their separators
    SCRATCH_BYTES = 8192       # deliveries up to this size are assembled on the stack
    MEMO_SLOTS = 1024          # subjects whose match result a run caches
    SCAN_MAX = 1024            # messages scanned before the index is used
    ROW_MAX = 64               # takers of one run

cdef enum Stop:
    END = 0          # no more messages
    ENOUGH = 1       # a bound was reached
    UNREADABLE = 2   # the next message is not in memory, damaged, or removed from the row
    GO_ON = 3

cdef const char* NO_HEADERS = b"NATS/1.0\r\n"
cdef const char* SIZE_KEY = b"Nats-Msg-Size: "

TAKERS_MAX = ROW_MAX
"""Requests that take turns within one run."""


class DeliveryRun(NamedTuple):
    """The result of a run."""

    sent: int
    size: int
    """As the pump's bound counts: subjects, ack subjects, headers and payloads."""
    flow: int
    """As flow control counts: with the deliver subject instead of the message's subject."""
    last_flow: int
    """The part of `flow` that the last message has."""
    last_seq: int
    num_undelivered: int
    """Undelivered messages after the run, if the caller's number was right."""
    counted_to: int
    at_end: bool
    """No more visible messages match."""
    spans: list[tuple[int, int]]
    """The delivered stream sequences, if requested."""
    given: list[int]
    """How many messages each taker got."""
    next_taker: int
    """Index of the next taker."""
    bytes_left: list[int]
    """Remaining bytes of each taker with a byte limit; 0 for the others."""


@cython.final
cdef class Pump:
    def __cinit__(self, *, MessageLog log not None, Router router not None,
                  SubList interest not None, str ack_prefix not None):
        self.log = log
        self.router = router
        self.interest = interest
        self.prefix = f"{ack_prefix}1.".encode("utf-8", "surrogateescape")
        self.filters = ()

    def __dealloc__(self):
        free(self.spans)

    def set_filters(self, tuple filters not None) -> None:
        """Deliver only what any of these filters matches; () matches everything."""
        cdef bytes raw
        self.filters = filters
        self.literal = self.wanted = None
        self.are_many = len(filters) > FILTERS_FEW_MAX
        if self.are_many:
            return
        if len(filters) == 1:
            raw = filters[0].encode("utf-8", "surrogateescape")
            if not has_wildcard(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)):
                self.literal = raw
                return
        if filters:
            self.wanted = SubList(cache=False)
            for pattern in filters:
                self.wanted.insert(Subscription(pattern))

    def set_headers_only(self, bint headers_only) -> None:
        """Set whether to send the payload's size, in a header, instead of the payload."""
        self.headers_only = headers_only

    def run(self, list takers not None, *, uint64_t start, uint64_t consumer_seq,
            int64_t num_undelivered,
            uint64_t counted_to, uint64_t msgs_max, int64_t size_max, int64_t flow_max,
            bint in_turns, bint spans_kept, const uint64_t[::1] row=None,
            size_t row_at=0) -> DeliveryRun:
        """Deliver from `start` on to the takers, (subject, messages, bytes) each, in order.

        With a row deliver only its sequences, from index `row_at` on.

        With `in_turns` the first taker follows the last as long as it may get more; without, each
        taker gets one message at most. The run ends with the message that reaches one of the
        bounds, and before a message that might exceed a taker's bytes; 0 bytes means no byte limit.
        """
        cdef uint64_t memo[MEMO_SLOTS]
        cdef char small[SCRATCH_BYTES]
        cdef Taker queue[ROW_MAX]
        cdef Scratch scratch
        cdef uint32_t i
        cdef bytes to
        cdef int stop
        self.ntakers = min(<uint32_t>len(takers), <uint32_t>ROW_MAX)
        for i in range(self.ntakers):
            to, left, queue[i].bytes_left = takers[i]
            queue[i].to = PyBytes_AS_STRING(to)
            queue[i].to_len = PyBytes_GET_SIZE(to)
            queue[i].left = left
            queue[i].given = 0
        self.row_left = 0
        if row is not None and row_at < <size_t>row.shape[0]:
            self.row = &row[row_at]
            self.row_left = row.shape[0] - row_at
        if self.wanted is not None:
            memset(memo, 0, sizeof(memo))
        self.memo = memo
        self.takers = queue
        scratch.data = scratch.small = small
        scratch.cap = SCRATCH_BYTES
        self.consumer_seq = consumer_seq
        self.num_undelivered = num_undelivered
        self.counted_to = counted_to
        self.spans_kept = spans_kept
        self.nspans = 0
        self.sent = self.last_seq = 0
        self.size = self.flow = self.last_flow = 0
        self.turn = 0
        stop = self.send_all(start, msgs_max, size_max, flow_max, in_turns, &scratch)
        if scratch.data != small:
            free(scratch.data)
        self.memo = NULL
        self.takers = NULL
        self.row = NULL
        spans = [(self.spans[i].first, self.spans[i].last) for i in range(self.nspans)]
        given = [queue[i].given for i in range(self.ntakers)]
        bytes_left = [queue[i].bytes_left for i in range(self.ntakers)]
        return DeliveryRun(self.sent, self.size, self.flow, self.last_flow, self.last_seq,
                           self.num_undelivered,
                   self.counted_to, stop == END, spans, given, self.turn, bytes_left)

    def has_next(self, uint64_t start) -> bool:
        """Return whether there is a message to deliver from `start` on."""
        cdef uint64_t memo[MEMO_SLOTS]
        cdef uint64_t seq
        if self.wanted is not None:
            memset(memo, 0, sizeof(memo))
        self.memo = memo
        seq = self.following(start)
        self.memo = NULL
        return 0 < seq <= self.log.visible_max

    cdef int send_all(self, uint64_t start, uint64_t msgs_max, int64_t size_max, int64_t flow_max,
                      bint in_turns, Scratch* scratch) noexcept:
        cdef RecordView view
        cdef uint64_t seq = start
        cdef Taker* taker
        cdef int found
        while self.sent < msgs_max and self.size < size_max and self.flow < flow_max:
            taker = self.takers + self.turn
            if self.turn == self.ntakers or taker.left == 0:
                return ENOUGH
            found = self.pick(&seq, &view)
            if found != GO_ON:
                return found
            if taker.bytes_left and not self.fits(&view, taker):
                return ENOUGH
            self.send(&view, taker, scratch)
            if taker.left == 0 and taker.bytes_left:
                self.turn += 1
                return ENOUGH    # a request with a byte limit ends with a status line
            seq += 1
            self.turn += 1
            if in_turns:
                self.skip_full_takers()
        return ENOUGH

    cdef int pick(self, uint64_t* seq, RecordView* view) noexcept:
        """Find the next message of the row, or from `seq` on."""
        if self.row != NULL:
            if self.row_left == 0:
                return ENOUGH
            seq[0] = self.row[0]
            if seq[0] > self.log.visible_max or self.find(seq[0], view) != 0:
                return UNREADABLE
            self.row += 1
            self.row_left -= 1
            return GO_ON
        seq[0] = self.following(seq[0])
        if seq[0] == 0 or seq[0] > self.log.visible_max:
            return END
        return GO_ON if self.find(seq[0], view) == 0 else UNREADABLE

    cdef bint fits(self, const RecordView* view, const Taker* taker) noexcept:
        """Return False if the message might exceed the taker's byte limit; `Delivery` then decides.

        The caller checks that there is a limit.
        """
        cdef size_t most = (PyBytes_GET_SIZE(self.prefix) + NUMBERS_BYTES_MAX + view.subject_len
                            + view.header_len + view.payload_len + SIZE_MARK_MAX)
        return <int64_t>most < taker.bytes_left

    cdef void skip_full_takers(self) noexcept nogil:
        """Move the turn to the next taker that may get more, if there is one."""
        cdef uint32_t i
        for i in range(self.ntakers):
            if self.turn == self.ntakers:
                self.turn = 0
            if self.takers[self.turn].left:
                return
            self.turn += 1

    # -- selection

    cdef uint64_t following(self, uint64_t start) noexcept:
        """Return the first matching sequence from `start` on; 0 if there is none."""
        cdef Subject* subject
        if self.wanted is not None:
            return self.search(start)
        if self.are_many:
            return self.log.find_next(self.filters, start)
        if self.literal is None:
            return self.log.live_from(start)
        subject = self.log.subjects.find(PyBytes_AS_STRING(self.literal),
                                         PyBytes_GET_SIZE(self.literal))
        return 0 if subject == NULL else seqs_at_least(&subject.seqs, start)

    cdef uint64_t search(self, uint64_t start) noexcept:
        """As `following`, but scan the next messages first: for a wildcard the index visits every
        subject that matches."""
        cdef Block* block = NULL
        cdef Entry* entry
        cdef uint64_t seq = start
        cdef uint32_t i
        for i in range(SCAN_MAX):
            seq = self.log.live_from(seq)
            if seq == 0 or seq > self.log.visible_max:
                return 0
            entry = self.log.entry_at(seq, &block)
            if self.is_wanted(entry.subject):
                return seq
            seq += 1
        return self.log.find_next(self.filters, seq)

    cdef bint is_wanted(self, uint32_t subject) noexcept:
        """Return whether a subject matches, by its id; cached for the rest of the run."""
        cdef uint64_t* slot = self.memo + subject % MEMO_SLOTS
        cdef Subject* found
        if slot[0] >> 1 != <uint64_t>subject + 1:
            found = self.log.subjects.by_id[subject]
            slot[0] = (<uint64_t>subject + 1) << 1
            slot[0] |= self.wanted.interested(subject_text(found), found.length)
        return slot[0] & 1

    cdef int find(self, uint64_t seq, RecordView* view) noexcept:
        cdef Block* block = NULL
        cdef Entry* entry = self.log.entry_at(seq, &block)
        if entry == NULL or block.image == NULL:
            return -1
        if read_record(block.image + entry.offset, entry.length, &block.keys, view,
                       not block.verified) != 0:
            return -1
        return 0 if view.kind == MESSAGE and view.seq == seq else -1

    # -- sending

    cdef void fill(self, RecordView* view, Body* body) noexcept nogil:
        """Set the parts of a message that are sent."""
        cdef char* at = body.mark
        body.head = view.header
        if not self.headers_only:
            body.head_len = view.header_len + view.payload_len     # the payload follows its header
            body.header_len = view.header_len
            body.mark_len = 0
            return
        body.head_len = view.header_len - 2                # without the empty line
        if view.header_len <= 2:
            body.head, body.head_len = NO_HEADERS, strlen(NO_HEADERS)
        memcpy(at, SIZE_KEY, strlen(SIZE_KEY))
        at += strlen(SIZE_KEY)
        at += put_number(at, view.payload_len)
        memcpy(at, b"\r\n\r\n", 4)
        body.mark_len = at + 4 - body.mark
        body.header_len = body.head_len + body.mark_len

    cdef void send(self, RecordView* view, Taker* taker, Scratch* scratch) noexcept:
        """Assemble the end of a delivery line and its body, and route it."""
        cdef Message msg
        cdef Body body
        cdef char* at
        cdef size_t prefix_len = PyBytes_GET_SIZE(self.prefix)
        cdef size_t body_len, need
        cdef int64_t num_undelivered = self.num_undelivered - (view.seq <= self.counted_to)
        self.fill(view, &body)
        body_len = body.head_len + body.mark_len
        need = prefix_len + NUMBERS_BYTES_MAX + body_len
        if need > scratch.cap:
            if scratch.data != scratch.small:
                free(scratch.data)
            scratch.data = <char*>xalloc(need)
            scratch.cap = need
        at = scratch.data
        memcpy(at, PyBytes_AS_STRING(self.prefix), prefix_len)
        at += prefix_len
        at = dotted(at, view.seq)
        at = dotted(at, self.consumer_seq + 1)
        at = dotted(at, <uint64_t>view.ts)
        at += put_number(at, <uint64_t>(num_undelivered if num_undelivered > 0 else 0))
        msg.reply = scratch.data
        msg.reply_len = at - scratch.data
        at[0] = c' '
        at += 1
        if body.header_len:
            at += put_number(at, body.header_len)
            at[0] = c' '
            at += 1
        at += put_number(at, body_len)
        memcpy(at, b"\r\n", 2)
        at += 2
        msg.sizes = scratch.data
        msg.sizes_len = at - scratch.data
        msg.body = at
        memcpy(at, body.head, body.head_len)
        memcpy(at + body.head_len, body.mark, body.mark_len)
        memcpy(at + body_len, b"\r\n", 2)
        msg.subject = view.subject
        msg.subject_len = view.subject_len
        msg.size = body_len
        msg.hdr_len = body.header_len
        self.router.route_to(self.interest, NULL, &msg, taker.to, taker.to_len)
        self.note(view, taker, msg.reply_len, body_len)

    cdef void note(self, RecordView* view, Taker* taker, size_t reply_len,
                   size_t body_len) noexcept:
        cdef Span* span
        self.consumer_seq += 1
        self.sent += 1
        self.last_seq = view.seq
        if view.seq <= self.counted_to:
            self.num_undelivered -= 1
        else:
            self.counted_to = view.seq     # it was read before it was announced
        self.last_flow = reply_len + body_len + taker.to_len
        self.flow += self.last_flow
        self.size += self.last_flow - taker.to_len + view.subject_len
        taker.left -= 1
        taker.given += 1
        if taker.bytes_left:
            taker.bytes_left -= reply_len + body_len + view.subject_len
        if not self.spans_kept:
            return
        if self.nspans and self.spans[self.nspans - 1].last + 1 == view.seq:
            self.spans[self.nspans - 1].last = view.seq
            return
        if self.nspans == self.spans_cap:
            self.spans_cap = 2 * self.spans_cap + 8
            self.spans = <Span*>xrealloc(self.spans, self.spans_cap * sizeof(Span))
        span = self.spans + self.nspans
        span.first = span.last = view.seq
        self.nspans += 1


cdef inline char* dotted(char* at, uint64_t value) noexcept nogil:
    at += put_number(at, value)
    at[0] = c'.'
    return at + 1
