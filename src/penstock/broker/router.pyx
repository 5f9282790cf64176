"""The router: from a published message to encoded bytes in the subscribers' outboxes.

Every matching plain subscription gets the message, and one member of every queue group. A delivery
consists of the publisher's bytes, copied once per receiver; a payload of at least SHARED_BYTES for
several receivers is copied once and referenced by all of them. Nothing is decoded, and no Python
object is created, unless a receiver is a callback of this process.

The router writes into sinks and never sends. It reports what the caller must do next: which sinks
are dirty, urgent or too slow, which subscriptions got their last message, and how much work it did,
so that the caller can serve other clients in between.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdlib cimport free
from libc.string cimport memcpy, strlen

from penstock.broker.outbox cimport (
    chunk_bytes, out_append, out_append_shared, out_reserve, out_reserve_exact, pool_free,
    release_bytes, share_bytes,
)
from penstock.subjects.trie_nodes cimport (
    SUB_CALLBACK, SUB_FILTERED, SUB_LANE, SUB_REMOVED, SUB_ROUTED, SUB_SHADOW, SUB_SINK, Match,
    sub_sid, xrealloc,
)
from penstock.subjects.trie cimport Subscription, sub_queue, sub_subject

from functools import partial

cdef enum:
    NUMBER_DIGITS_MAX = 20
    UNTRIED_FACTOR = 2      # times max_pending may wait before the socket was tried
    SHARED_BYTES = 16384    # deliveries of this size to several receivers share one copy
    CALL_WORK = 32          # units of work of a message that is handed to Python
    WORK_BYTES_SHIFT = 10   # copying 1 KiB counts as one unit of work

# Why a traced message does not reach a subscription; the texts of the reference.
TRACE_NO_ECHO = "Not delivered because of no echo"
TRACE_DENIED = "Not delivered because subscription denies this subject"
TRACE_CLOSED = "Not delivered because client is closed"
TRACE_EXCEEDED = "Not delivered because auto-unsubscribe exceeded"



cdef const char* PAIRS = (
    b"0001020304050607080910111213141516171819202122232425262728293031323334353637383940414243444546"
    b"4748495051525354555657585960616263646566676869707172737475767778798081828384858687888990919293"
    b"949596979899")


cdef size_t put_number(char* at, size_t value) noexcept nogil:
    """Write a decimal number, two digits at a time and in 32 bits if possible: a hot path."""
    cdef char digits[NUMBER_DIGITS_MAX]
    cdef char* first = digits + NUMBER_DIGITS_MAX
    cdef uint32_t low, i
    while value >= 100_000_000:
        low = <uint32_t>(value % 100_000_000)
        value //= 100_000_000
        for i in range(4):
            first -= 2
            memcpy(first, PAIRS + 2 * (low % 100), 2)
            low //= 100
    low = <uint32_t>value
    while low >= 100:
        first -= 2
        memcpy(first, PAIRS + 2 * (low % 100), 2)
        low //= 100
    first -= 2
    memcpy(first, PAIRS + 2 * low, 2)
    first += low < 10                    # one digit only
    memcpy(at, first, digits + NUMBER_DIGITS_MAX - first)
    return digits + NUMBER_DIGITS_MAX - first


cdef inline char* put(char* at, const char* p, size_t n) noexcept nogil:
    memcpy(at, p, n)
    return at + n


cdef class Parcel:
    def __cinit__(self, str subject not None, bytes payload not None, str reply not None,
                  bytes header not None):
        cdef size_t hdr_len = len(header)
        cdef size_t size = hdr_len + len(payload)
        self.subject = subject.encode("utf-8", "surrogateescape")
        self.reply = reply.encode("utf-8", "surrogateescape")
        self.body = b"%b%b\r\n" % (header, payload)
        self.sizes = b"%d %d\r\n" % (hdr_len, size) if hdr_len else b"%d\r\n" % size
        if self.reply:
            self.sizes = b"%b %b" % (self.reply, self.sizes)
        self.msg.subject = self.subject
        self.msg.subject_len = len(self.subject)
        self.msg.reply = self.reply
        self.msg.reply_len = len(self.reply)
        self.msg.sizes = self.sizes
        self.msg.sizes_len = len(self.sizes)
        self.msg.body = self.body
        self.msg.size = size
        self.msg.hdr_len = hdr_len


cdef class Owner:
    cdef bint delivery_denied(self, Sub* sub, Message* msg):
        return False

    cdef void note_reply(self, Message* msg):
        pass

    cdef void trace_delivery(self, Sub* sub, Message* msg):
        pass


cdef class LaneListener:
    cpdef object received(self, str subject, str reply, bytes header, bytes payload, object source):
        """Take a message that the lane left; runs after the data path of the turn."""

    cpdef object lane_changed(self):
        """The lane took or left messages in this turn."""


cdef class Lane:
    cdef bint take(self, Message* msg) noexcept:
        return False

    cdef LaneResult commit_turn(self) except LANE_BROKEN:
        """Commit what it took, as far as it can, at the end of a turn."""
        return LANE_UNCOMMITTED


@cython.final
cdef class TurnState:
    def __cinit__(self):
        self.calls = []
        self.lanes = []


@cython.final
cdef class Router:
    def __cinit__(self, *, uint64_t seed=1):
        self.rng = seed | 1
        self.turn = TurnState()

    def __dealloc__(self):
        pool_free(&self.pool)
        free(self.spent)

    cdef uint32_t below(self, uint32_t n) noexcept nogil:
        """Return a number in [0, n) by xorshift: queue groups need spread, not secrecy."""
        self.rng ^= self.rng << 13
        self.rng ^= self.rng >> 7
        self.rng ^= self.rng << 17
        return <uint32_t>(((self.rng >> 32) * n) >> 32)

    cdef uint32_t route(self, SubList interest, Sink* source, Message* msg) noexcept:
        """Deliver to all subscribers; return how many got the message."""
        return self.route_to(interest, source, msg, msg.subject, msg.subject_len)

    cdef uint32_t route_to(self, SubList interest, Sink* source, Message* msg,
                           const char* to, size_t to_len) noexcept:
        """As `route`, to subscribers of `to`; they see the message's own subject."""
        cdef Match found
        cdef uint32_t i, j, count, at, reached = 0
        cdef Sub** group
        self.to = to
        self.to_len = to_len
        interest.find(to, to_len, &found)
        self.fanout = found.nplain + found.ngroups
        self.turn.work += 1 + self.fanout + found.cost
        for i in range(found.nplain):
            reached += self.deliver(found.plain[i], source, msg)
        for i in range(found.ngroups):
            group = found.members + found.groups[i].start
            count = found.groups[i].count
            at = self.below(count) if count > 1 else 0
            for j in range(count):
                if self.deliver(group[at], source, msg):
                    reached += 1
                    break
                self.turn.work += 1
                at = at + 1 if at + 1 < count else 0
        if self.shared != NULL:
            release_bytes(&self.pool, self.shared)
            self.shared = NULL
        elif msg.size >= 1 << WORK_BYTES_SHIFT:
            self.turn.work += (reached * msg.size) >> WORK_BYTES_SHIFT
        self.fanout = 0
        if self.noffered:
            self.importing = False      # lanes may send messages of their own
            self.offer_all(source, msg)
        return reached

    # -- the same for a traced message: rare and slow, and kept off the fast path

    cdef uint32_t route_traced(self, SubList interest, Sink* source, Message* msg,
                               object trace) except? 4294967295:
        """As `route`; report every receiver to the trace."""
        cdef Match found
        cdef uint32_t i, j, at, count, reached = 0
        cdef list plain = [], groups = []
        self.to = msg.subject
        self.to_len = msg.subject_len
        interest.find(msg.subject, msg.subject_len, &found)
        # The match is valid until the next one, and code called by a trace may run another.
        for i in range(found.nplain):
            plain.append(<size_t>found.plain[i])
        for i in range(found.ngroups):
            groups.append([<size_t>found.members[found.groups[i].start + j]
                           for j in range(found.groups[i].count)])
        for member in plain:
            reached += self.deliver_traced(<Sub*><size_t>member, source, msg, trace)
        for members in groups:
            count = <uint32_t>len(members)
            at = self.below(count) if count > 1 else 0
            for j in range(count):
                if self.deliver_traced(<Sub*><size_t>members[at], source, msg, trace):
                    reached += 1
                    break
                at = at + 1 if at + 1 < count else 0
        if self.noffered:
            self.importing = False
            self.offer_all(source, msg)
        return reached

    cdef bint deliver_traced(self, Sub* sub, Sink* source, Message* msg, object trace) except -1:
        cdef Sink* sink
        if sub.flags & SUB_REMOVED:
            return False
        if sub.kind == SUB_CALLBACK:
            return self.call_traced(sub, source, msg, trace)
        if sub.kind != SUB_SINK:
            return False
        sink = <Sink*>sub.owner
        error = None
        if sink == source and sink.flags & SINK_NO_ECHO:
            error = TRACE_NO_ECHO
        elif sub.flags & SUB_FILTERED and (<Owner>sink.owner).delivery_denied(sub, msg):
            error = TRACE_DENIED
        elif sink.flags & SINK_CLOSING:
            error = TRACE_CLOSED
        elif sub.max_deliver and sub.delivered >= sub.max_deliver:
            error = TRACE_EXCEEDED
        trace.egress(<object>sink.owner, sub_subject(sub), sub_queue(sub), error)
        if error is not None:
            return False
        return True if trace.only else self.deliver(sub, source, msg)

    cdef bint call_traced(self, Sub* sub, Sink* source, Message* msg, object trace) except -1:
        """Queue the call of an internal subscriber, with the trace, after the data path."""
        cdef Lane lane
        cdef const char* payload = msg.body + msg.hdr_len
        if sub.flags & SUB_SHADOW and self.importing:
            return False
        call = (<Subscription>sub.owner).value
        target = getattr(call, "__self__", call)
        to = None
        if sub.flags & SUB_LANE:
            lane = <Lane>call
            lane.behind = True
            self.stir(lane)
            target, call = lane.listener, lane.listener.received
        elif sub.flags & SUB_ROUTED:
            to = self.to[:self.to_len].decode("utf-8", "surrogateescape")
        trace.hold()
        self.turn.calls.append((
            partial(trace.hop, target, call, to),
            msg.subject[:msg.subject_len].decode("utf-8", "surrogateescape"),
            msg.reply[:msg.reply_len].decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(msg.body, msg.hdr_len),
            PyBytes_FromStringAndSize(payload, msg.size - msg.hdr_len),
            None if source == NULL else <object>source.owner,
        ))
        return True

    cdef bint deliver(self, Sub* sub, Sink* source, Message* msg) noexcept:
        cdef Sink* sink
        if sub.flags & SUB_REMOVED:
            return False
        if sub.kind == SUB_CALLBACK:
            if sub.flags & SUB_LANE:
                if self.noffered == LANES_PER_MESSAGE:
                    self.pass_by(sub, source, msg)
                else:
                    self.offered[self.noffered] = sub
                    self.noffered += 1
                return True
            if sub.flags & SUB_SHADOW and self.importing:
                return False
            self.hand_to_callback(sub, source, msg)
            return True
        if sub.kind != SUB_SINK:
            return False
        sink = <Sink*>sub.owner
        if sink.flags & SINK_CLOSING:
            return False
        if sink == source and sink.flags & SINK_NO_ECHO:
            return False
        if sub.flags & SUB_FILTERED and (<Owner>sink.owner).delivery_denied(sub, msg):
            return False
        sub.delivered += 1
        if sub.max_deliver:
            if sub.delivered > sub.max_deliver:
                return False
            if sub.delivered == sub.max_deliver:
                self.note_spent(sub)
        if sink.flags & (SINK_NOTES_REPLIES | SINK_TRACED):
            if sink.flags & SINK_TRACED:
                (<Owner>sink.owner).trace_delivery(sub, msg)
            if sink.flags & SINK_NOTES_REPLIES and msg.reply_len:
                (<Owner>sink.owner).note_reply(msg)
        self.write(sink, sub, msg)
        return True

    cdef void write(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil:
        cdef Outbox* out = &sink.out
        cdef size_t verb_len = 5 if msg.hdr_len else 4
        cdef size_t line = verb_len + msg.subject_len + sub.sid_len + 2
        cdef size_t body_len = msg.size + 2
        cdef size_t n = line + msg.sizes_len + body_len
        cdef char* at
        if n >= SHARED_BYTES and self.fanout > 1:
            self.write_shared(sink, sub, msg)
            return
        if msg.hdr_len and not sink.flags & SINK_HEADERS:
            self.write_stripped(sink, sub, msg)
            return
        if out.tail != NULL and out.tail.cap - out.tail.end >= n:
            at = chunk_bytes(out.tail) + out.tail.end
            out.tail.end += <uint32_t>n
            out.pending += n
        else:
            at = out_reserve(&self.pool, out, n)
            if at == NULL:
                self.write_in_pieces(sink, sub, msg)
                return
        memcpy(at, b"HMSG " if msg.hdr_len else b"MSG ", verb_len)
        at += verb_len
        memcpy(at, msg.subject, msg.subject_len)
        at += msg.subject_len
        at[0] = c' '
        at += 1
        memcpy(at, sub_sid(sub), sub.sid_len)
        at += sub.sid_len
        at[0] = c' '
        at += 1
        if msg.sizes + msg.sizes_len == msg.body:
            memcpy(at, msg.sizes, msg.sizes_len + body_len)
        else:
            memcpy(at, msg.sizes, msg.sizes_len)
            memcpy(at + msg.sizes_len, msg.body, body_len)
        self.count_delivery(sink, msg.size)

    cdef void write_in_pieces(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil:
        """Write a delivery that is larger than a chunk."""
        self.write_line(sink, sub, msg, b"HMSG " if msg.hdr_len else b"MSG ")
        out_append(&self.pool, &sink.out, msg.sizes, msg.sizes_len)
        out_append(&self.pool, &sink.out, msg.body, msg.size + 2)
        self.count_delivery(sink, msg.size)

    cdef void write_shared(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil:
        """Write the receiver's own delivery line, and a reference to the shared body."""
        cdef bint stripped = msg.hdr_len and not sink.flags & SINK_HEADERS
        cdef size_t start = msg.hdr_len if stripped else 0
        cdef size_t sizes_len = msg.sizes_len
        cdef const char* verb = b"HMSG " if msg.hdr_len and not stripped else b"MSG "
        cdef size_t verb_len = strlen(verb)
        cdef char number[NUMBER_DIGITS_MAX]
        cdef size_t digits = 0
        cdef char* at
        if stripped:
            digits = put_number(number, msg.size - start)
            sizes_len = (msg.reply_len + 1 if msg.reply_len else 0) + digits + 2
        if self.shared == NULL:
            self.shared = share_bytes(&self.pool, msg.body, msg.size + 2)
            self.turn.work += msg.size >> WORK_BYTES_SHIFT
        at = out_reserve_exact(&self.pool, &sink.out,
                               verb_len + msg.subject_len + sub.sid_len + 2 + sizes_len)
        at = put(at, verb, verb_len)
        at = put(at, msg.subject, msg.subject_len)
        at = put(at, b" ", 1)
        at = put(at, sub_sid(sub), sub.sid_len)
        at = put(at, b" ", 1)
        if not stripped:
            put(at, msg.sizes, msg.sizes_len)
        else:
            if msg.reply_len:
                at = put(at, msg.reply, msg.reply_len)
                at = put(at, b" ", 1)
            at = put(at, number, digits)
            put(at, b"\r\n", 2)
        out_append_shared(&self.pool, &sink.out, self.shared, start, msg.size + 2 - start)
        self.count_delivery(sink, msg.size - start)

    cdef void write_stripped(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil:
        """Write the payload alone, as MSG, for a peer without header support."""
        cdef char number[NUMBER_DIGITS_MAX]
        cdef size_t size = msg.size - msg.hdr_len
        self.write_line(sink, sub, msg, b"MSG ")
        if msg.reply_len:
            out_append(&self.pool, &sink.out, msg.reply, msg.reply_len)
            out_append(&self.pool, &sink.out, b" ", 1)
        out_append(&self.pool, &sink.out, number, put_number(number, size))
        out_append(&self.pool, &sink.out, b"\r\n", 2)
        out_append(&self.pool, &sink.out, msg.body + msg.hdr_len, size + 2)
        self.count_delivery(sink, size)

    cdef void write_line(self, Sink* sink, Sub* sub, Message* msg,
                         const char* verb) noexcept nogil:
        out_append(&self.pool, &sink.out, verb, strlen(verb))
        out_append(&self.pool, &sink.out, msg.subject, msg.subject_len)
        out_append(&self.pool, &sink.out, b" ", 1)
        out_append(&self.pool, &sink.out, sub_sid(sub), sub.sid_len)
        out_append(&self.pool, &sink.out, b" ", 1)

    cdef inline void count_delivery(self, Sink* sink, size_t size) noexcept nogil:
        sink.out_msgs += 1
        sink.out_bytes += size
        self.turn.written += size
        self.mark_dirty(sink)

    cdef void queue(self, Sink* sink, const char* p, size_t n) noexcept nogil:
        """Queue protocol lines (PONG, -ERR, INFO), which are flushed and bounded like messages."""
        if sink.flags & SINK_CLOSING:
            return
        out_append(&self.pool, &sink.out, p, n)
        self.mark_dirty(sink)

    cdef void list_dirty(self, Sink* sink) noexcept nogil:
        """List the sink to be flushed at the end of the turn."""
        if not sink.flags & SINK_DIRTY:
            sink.flags |= SINK_DIRTY
            sink.next_dirty = NULL
            if self.turn.dirty_last == NULL:
                self.turn.dirty_first = sink
            else:
                self.turn.dirty_last.next_dirty = sink
            self.turn.dirty_last = sink

    cdef void mark_dirty(self, Sink* sink) noexcept nogil:
        """As `list_dirty`; also mark a sink with a large backlog as urgent, pressed or too slow."""
        if not sink.flags & SINK_DIRTY:
            self.list_dirty(sink)
        if sink.out.pending < sink.urgent_at:
            return
        if sink.flags & SINK_BLOCKED:
            if sink.out.pending > sink.max_pending:
                sink.flags |= SINK_SLOW | SINK_CLOSING
            elif (is_pressed(sink, self.turn.now_ns)
                    and sink.out.pending - sink.progress_left < sink.max_pending - sink.pressure_at):
                # Holding publishers back helps a reader that keeps reading. If a reader accepted
                # nothing while many bytes were added, it would only slow all other clients.
                self.turn.pressed = sink
            return
        if sink.out.pending > sink.pressure_at:
            self.turn.crowded = True
            # One message to many subscriptions of one connection: the limit is checked now,
            # because no flush can come in between.
            if sink.out.pending // UNTRIED_FACTOR > sink.max_pending:
                sink.flags |= SINK_SLOW | SINK_CLOSING
        if not sink.flags & SINK_URGENT:
            sink.flags |= SINK_URGENT
            sink.next_urgent = self.turn.urgent
            self.turn.urgent = sink

    cdef void note_spent(self, Sub* sub) noexcept nogil:
        if self.nspent == self.spent_cap:
            self.spent_cap = 2 * self.spent_cap + 16
            self.spent = <Sub**>xrealloc(self.spent, self.spent_cap * sizeof(Sub*))
        self.spent[self.nspent] = sub
        self.nspent += 1

    cdef void offer_all(self, Sink* source, Message* msg) noexcept:
        """Offer the message to the lanes, after the match was used: lanes may run another match."""
        cdef Sub* lanes[LANES_PER_MESSAGE]
        cdef uint32_t i, n = self.noffered
        for i in range(n):
            lanes[i] = self.offered[i]
        self.noffered = 0
        for i in range(n):
            self.offer(lanes[i], source, msg)

    cdef void offer(self, Sub* sub, Sink* source, Message* msg) noexcept:
        """Let a lane take the message, or hand it and the rest of the turn to its listener."""
        cdef Lane lane = <Lane>(<Subscription>sub.owner).value
        if lane.behind or not lane.take(msg):
            self.pass_by(sub, source, msg)
        elif not lane.quiet:
            self.stir(lane)

    cdef void pass_by(self, Sub* sub, Sink* source, Message* msg) noexcept:
        cdef Lane lane = <Lane>(<Subscription>sub.owner).value
        lane.behind = True
        self.stir(lane)
        self.hand_to_callback(sub, source, msg)

    cdef void stir(self, Lane lane) noexcept:
        if not lane.stirred:
            lane.stirred = True
            self.turn.lanes.append(lane)

    def take_lanes(self) -> list:
        """Return the lanes that messages came to since the last call; they may take more now.

        While calls wait, a lane that passed a message on takes nothing, to keep the order.
        """
        cdef Lane lane
        lanes, self.turn.lanes = self.turn.lanes, []
        for lane in lanes:
            if self.turn.calls and lane.behind:
                self.turn.lanes.append(lane)
            else:
                lane.stirred = lane.behind = False
        return lanes

    def notify_lanes(self) -> None:
        """Notify the listeners of the lanes that messages came to since the last call."""
        cdef Lane lane
        for lane in self.take_lanes():
            lane.listener.lane_changed()

    cdef void hand_to_callback(self, Sub* sub, Sink* source, Message* msg):
        """Queue a call with copies of the message: internal subscribers run after the data path."""
        self.turn.work += CALL_WORK
        cdef const char* payload = msg.body + msg.hdr_len
        call = (<Subscription>sub.owner).value
        if sub.flags & SUB_LANE:
            call = (<Lane>call).listener.received
        elif sub.flags & SUB_ROUTED:
            call = partial(call, self.to[:self.to_len].decode("utf-8", "surrogateescape"))
        self.turn.calls.append((
            call,
            msg.subject[:msg.subject_len].decode("utf-8", "surrogateescape"),
            msg.reply[:msg.reply_len].decode("utf-8", "surrogateescape"),
            PyBytes_FromStringAndSize(msg.body, msg.hdr_len),
            PyBytes_FromStringAndSize(payload, msg.size - msg.hdr_len),
            None if source == NULL else <object>source.owner,
        ))

    cdef void no_responders(self, SubList interest, Sink* source, Message* msg) noexcept:
        """Reply 503 to the requester's own subscription: no subscriber matched its request."""
        cdef Match found
        cdef Message answer
        cdef bytes block, sizes
        cdef uint32_t i
        interest.find(msg.reply, msg.reply_len, &found)
        for i in range(found.nplain):
            if found.plain[i].kind != SUB_SINK or found.plain[i].owner != source:
                continue
            block = b"NATS/1.0 503\r\nNats-Subject: %b\r\n\r\n" % msg.subject[:msg.subject_len]
            sizes = b"%d %d\r\n" % (len(block), len(block))
            answer.subject = msg.reply
            answer.subject_len = msg.reply_len
            answer.reply = NULL
            answer.reply_len = 0
            answer.sizes = sizes
            answer.sizes_len = len(sizes)
            answer.size = answer.hdr_len = len(block)
            block += b"\r\n"
            answer.body = block
            self.write(source, found.plain[i], &answer)   # not counted as a delivery
            return
