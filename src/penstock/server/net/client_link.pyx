"""ClientLink: one client's side of the protocol, from received bytes to router, trie and replies.

`consume` parses received bytes and executes the complete frames. PUB, HPUB, SUB, UNSUB and PING run
here, in C. CONNECT, subscription permissions and close handling go to the handler, a Python object
that implements `Handler` in client_link.pyi.

A link never touches its socket: it writes to the sink's outbox. `close` appends the link to the
IoLoop's `closing` list, and the IoLoop closes it at the end of the turn.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp

from penstock.broker.router cimport (
    SINK_CLOSING, SINK_HEADERS, SINK_NO_ECHO, SINK_NOTES_REPLIES, SINK_TRACED, Parcel,
)
from penstock.subjects.trie_nodes cimport (
    SUB_FILTERED, SUB_REMOVED, SUB_SINK, new_sub, sub_sid, valid_pattern)
from penstock.server.net.link_checks cimport (
    asks_for_trace, count_tokens, frame_text, literal_subject, reserved_reply, reserved_subject,
    text_of)
from penstock.server.net.sid_table cimport sid_add, sid_find, sid_remove
from penstock.subjects.trie cimport sub_queue, sub_subject
from penstock.wire.parser cimport (
    BAD_ARGUMENTS, CONNECT, HEADERS_NOT_ENABLED, HPUB, INFO, LINE_TOO_LONG, MINUS_ERR, NEED_MORE,
    PAYLOAD_TOO_BIG, PING, PLUS_OK, PONG, PUB, SUB, UNKNOWN_VERB, UNSUB, parse_size, scan,
)

cdef enum:
    NAME_BYTES_MAX = 65000        # cap of a control line: what trie and read buffer can hold
    OBEY_WORK = 16               # units of work of a SUB, UNSUB or PING
    ASK_WORK = 128               # units of work of a call into Python
    CONNECTS_MAX = 64            # CONNECTs per connection; a client needs one
    URGENT_BYTES = 65536         # flushed before the turn ends, to stay in the processor's cache

# Return values of Handler.may_subscribe.
SUBSCRIBE_REFUSED = 0
SUBSCRIBE_ALLOWED = 1
SUBSCRIBE_FILTERED = 2


@cython.final
cdef class ClientLink(Owner):
    """One client connection, created by `IoLoop.attach`."""

    def __cinit__(self, uint64_t cid, handler, Router router not None, list closing not None,
                  SubList interest not None):
        self.cid = cid
        self.handler = handler
        self.router = router
        self.interest = interest
        self.closing = closing
        self.verbose = self.pedantic = True   # the defaults until CONNECT
        self.fd = -1
        self.sink.owner = <void*>self
        self.sids.seed = interest.seed

    def __dealloc__(self):
        free(self.sids.slots)
        free(self.carry)

    # -- configured by the handler

    def set_limits(self, *, size_t max_control_line, size_t max_payload, int64_t max_pending,
                   uint32_t max_subs, uint32_t max_sub_tokens) -> None:
        self.limits.max_control_line = min(max_control_line, <size_t>NAME_BYTES_MAX)
        self.limits.max_payload = max_payload
        self.max_subs = max_subs
        self.max_sub_tokens = max_sub_tokens
        self.sink.max_pending = max_pending
        self.sink.pressure_at = max_pending - max_pending // 4
        self.sink.urgent_at = min(<int64_t>URGENT_BYTES, max_pending // 2)

    def set_options(self, *, bint verbose, bint pedantic, bint echo, bint headers,
                    bint no_responders) -> None:
        self.verbose = verbose
        self.pedantic = pedantic
        self.no_responders = no_responders
        self.limits.headers = headers
        self.sink.flags &= ~(<uint32_t>(SINK_HEADERS | SINK_NO_ECHO))
        if headers:
            self.sink.flags |= SINK_HEADERS
        if not echo:
            self.sink.flags |= SINK_NO_ECHO

    def set_interest(self, SubList interest not None, *, bint is_system=False) -> None:
        """Set the account's subscription list, after dropping all subscriptions in the old one."""
        self.drop_subscriptions()
        self.interest = interest
        self.in_system_account = is_system

    def set_guards(self, *, SubList pub_allow=None, SubList pub_deny=None,
                   SubList deliver_deny=None, bint guards_subscribe=False,
                   bint may_respond=False) -> None:
        """Set the checks that the client's permissions need; without arguments all is allowed."""
        self.pub_allow = pub_allow
        self.pub_deny = pub_deny
        self.deliver_deny = deliver_deny
        self.guards_subscribe = guards_subscribe
        self.may_respond = may_respond
        self.guards_publish = pub_allow is not None or pub_deny is not None
        self.sink.flags &= ~(<uint32_t>SINK_NOTES_REPLIES)
        if may_respond:
            self.sink.flags |= SINK_NOTES_REPLIES

    def set_import_hooks(self, *, bint imports, bint maps, bint samples=False) -> None:
        """Enable the handler calls that the account's imports, mappings and traces need."""
        self.imports = imports
        self.maps = maps
        self.samples = samples

    def set_login_needed(self, bint needed) -> None:
        self.login_needed = needed

    def set_traced(self, bint traced) -> None:
        self.traced = traced
        self.sink.flags &= ~(<uint32_t>SINK_TRACED)
        if traced:
            self.sink.flags |= SINK_TRACED

    # -- sent to the client

    def send(self, bytes line not None) -> None:
        if self.traced:
            self.handler.trace("->>", line.decode("utf-8", "replace").strip())
        self.router.queue(&self.sink, PyBytes_AS_STRING(line), PyBytes_GET_SIZE(line))

    def error(self, str text not None) -> None:
        """Send a -ERR line; the connection stays open."""
        self.router.turn.work += ASK_WORK
        self.send(b"-ERR '%b'\r\n" % text.encode("utf-8", "surrogateescape"))
        self.handler.erred(text)

    def close(self, str reason not None, str error=None) -> None:
        """Close at the end of this turn, after queued output and after `error` as -ERR."""
        if self.close_reason is not None:
            return
        if error is not None:
            self.error(error)
        self.close_reason = reason
        self.sink.flags |= SINK_CLOSING
        self.closing.append(self)

    def drop_subscriptions(self) -> None:
        """Drop all subscriptions in one call; use `drop_some` where there may be very many."""
        self.drop_some(self.sids.cap)

    cdef bint drop_some(self, uint32_t slots) except -1:
        """Drop the subscriptions of the next `slots` table slots; return True if none is left.

        Between two calls the client may not subscribe or unsubscribe.
        """
        cdef uint32_t i, stop = self.sids.cap
        cdef Sub* sub
        if slots < stop - self.dropped_to:
            stop = self.dropped_to + slots
        for i in range(self.dropped_to, stop):
            sub = self.sids.slots[i]
            if sub == NULL:
                continue
            self.sids.slots[i] = NULL
            self.sids.count -= 1
            self.interest.drop(sub)
            if self.imports:
                self.handler.unsubscribed(text_of(sub_sid(sub), sub.sid_len))
        self.dropped_to = stop
        if stop < self.sids.cap:
            return False
        free(self.sids.slots)
        self.sids.slots = NULL
        self.sids.cap = self.sids.count = self.dropped_to = 0
        return True

    def hand(self, str sid not None, str subject not None, str reply not None,
             bytes header not None, bytes payload not None, ClientLink source) -> None:
        """Deliver a message from another account to one of the client's subscriptions."""
        if self.close_reason is not None:
            return
        cdef bytes raw = sid.encode("utf-8", "surrogateescape")
        cdef Sub* sub = sid_find(&self.sids, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
        cdef Parcel parcel
        if sub != NULL:
            parcel = Parcel(subject, payload, reply, header)
            self.router.deliver(sub, NULL if source is None else &source.sink, &parcel.msg)
            remove_exhausted_subs(self.router)

    def reply_no_responders(self, str subject not None, str reply not None) -> None:
        """Send the client a no-responders status, if it enabled that and a reply subject is set."""
        cdef Parcel parcel
        if self.no_responders and reply:
            parcel = Parcel(subject, b"", reply, b"")
            self.router.no_responders(self.interest, &self.sink, &parcel.msg)

    # -- read by monitoring

    @property
    def subscriptions(self) -> int:
        return self.sids.count

    @property
    def out_msgs(self) -> int:
        return self.sink.out_msgs

    @property
    def out_bytes(self) -> int:
        return self.sink.out_bytes

    @property
    def pending_bytes(self) -> int:
        return self.sink.out.pending + self.encoded.pending

    @property
    def last_activity_ns(self) -> int:
        """Time of the last received bytes, monotonic clock."""
        return self.last_active_ns

    @property
    def last_written_ns(self) -> int:
        """Time when the socket last accepted bytes, monotonic clock; 0: never."""
        return self.sink.progress_ns

    @property
    def fileno(self) -> int:
        return self.fd

    def subscription_details(self) -> list:
        """Return (sid, subject, queue or None, delivered, max) of each subscription."""
        return self.subscription_page(0, self.sids.cap)[0]

    def subscription_page(self, uint32_t slot, uint32_t limit) -> tuple:
        """Return up to `limit` details from table slot `slot` on, and the next slot (0 at the end).

        Slot 0 is the start. A subscription that stays is on exactly one page as long as the table
        does not grow in between.
        """
        cdef Sub* sub
        details = []
        while slot < self.sids.cap and limit:
            sub = self.sids.slots[slot]
            if sub != NULL:
                limit -= 1
                details.append((text_of(sub_sid(sub), sub.sid_len), sub_subject(sub),
                                sub_queue(sub), sub.delivered, sub.max_deliver))
            slot += 1
        return details, slot if slot < self.sids.cap else 0

    def recheck_subscriptions(self) -> None:
        """After a permission change: report and drop the subscriptions that are now refused."""
        cdef Sub* sub
        for sid, subject, queue, _, _ in self.subscription_details():
            verdict = self.handler.may_subscribe(subject, queue)
            raw = sid.encode("utf-8", "surrogateescape")
            sub = sid_find(&self.sids, PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw))
            if sub == NULL:
                continue        # the table is being emptied in slices
            sub.flags &= ~SUB_FILTERED
            if verdict == SUBSCRIBE_FILTERED:
                sub.flags |= SUB_FILTERED
            elif verdict == SUBSCRIBE_REFUSED:
                self.handler.subscription_lost(subject, queue, sid)
                self.remove_sub(sub)

    # -- input from the client

    cdef size_t consume(self, const char* p, size_t n) except? 0:
        """Execute the complete frames in the bytes; return how many bytes they took.

        Stops early when the router is crowded, and after WORK_PER_LOOK units of work. The caller
        then flushes or reads the clock, and calls again, possibly in a later turn.
        """
        cdef const char* start = p
        cdef const char* end = p + n
        cdef Frame frame
        cdef size_t used
        self.need = 0
        while p < end and self.close_reason is None and not self.held:
            if self.login_needed and (p[0] | 0x20) != c'c':
                self.handler.spoke_before_login()
                break
            used = scan(p, end, &self.limits, &frame)
            if used == 0:
                if frame.verb == NEED_MORE:
                    self.need = frame.need
                else:
                    self.fault(&frame)
                break
            p += used
            if self.traced:
                self.trace_frame(&frame)
            if frame.verb <= HPUB:
                self.on_publish(&frame)
                if self.router.turn.crowded or self.router.turn.work >= WORK_PER_LOOK:
                    break
            else:
                self.router.turn.ran_python = True
                if frame.verb == CONNECT and not self.may_connect():
                    p -= used
                    break
                self.obey(&frame)
                self.router.turn.work += OBEY_WORK
                if self.router.turn.work >= WORK_PER_LOOK:
                    break
        return p - start

    cdef bint may_connect(self) except -1:
        """Return whether to process a CONNECT now. If not, the link closes or the bytes come again.

        A repeated CONNECT drops all subscriptions. A large table is dropped first, in slices.
        """
        if self.connects >= CONNECTS_MAX:
            self.close("Protocol Violation", "maximum CONNECT operations exceeded")
            return False
        if self.connects and self.sids.count > DROPS_AT_ONCE:
            self.router.turn.work += WORK_PER_LOOK
            if not self.drop_some(DROPS_AT_ONCE):
                return False
        self.connects += 1
        self.router.turn.work += WORK_PER_LOOK
        return True

    cdef int trace_frame(self, Frame* frame) except -1:
        self.handler.trace("<<-", frame_text(frame))
        if frame.verb <= HPUB:
            self.handler.trace_payload("<<-", frame.body[:frame.size], frame.hdr_len)
        return 0

    cdef int obey(self, Frame* frame) except -1:
        if frame.verb == SUB:
            self.on_sub(frame)
        elif frame.verb == UNSUB:
            self.on_unsub(frame)
        elif frame.verb == PING:
            self.on_ping()
        elif frame.verb == PONG:
            self.handler.ponged()
        elif frame.verb == CONNECT:
            self.handler.connect(frame.line.p[:frame.line.n])
        elif frame.verb == INFO:
            self.handler.peer_info(frame.line.p[:frame.line.n])
        elif frame.verb == MINUS_ERR:
            self.handler.peer_erred(frame.line.p[:frame.line.n])
        return 0

    cdef int fault(self, Frame* frame) except -1:
        """Close after a parse error. As in the reference, only some errors are sent as -ERR."""
        if frame.verb == UNKNOWN_VERB:
            self.close("Parse Error", "Unknown Protocol Operation")
        elif frame.verb == LINE_TOO_LONG:
            self.close("Maximum Control Line Exceeded", "maximum control line exceeded")
        elif frame.verb == PAYLOAD_TOO_BIG:
            self.handler.payload_exceeded(frame.size, self.limits.max_payload, frame.body[
                :frame.hdr_len], text_of(frame.subject.p, frame.subject.n))
            self.close("Maximum Message Payload Exceeded", "Maximum Payload Violation")
        elif frame.verb == HEADERS_NOT_ENABLED:
            self.close("Message Header Violation")
        else:
            self.close("Protocol Violation")
        return 0

    cdef void say(self, const char* text, size_t n) noexcept nogil:
        self.router.queue(&self.sink, text, n)

    cdef void ok(self) noexcept nogil:
        self.router.queue(&self.sink, b"+OK\r\n", 5)

    cdef int on_ping(self) except -1:
        self.say(b"PONG\r\n", 6)
        if self.traced:
            self.handler.trace("->>", "PONG")
        if not self.pinged:
            self.pinged = self.handler.first_ping()
        return 0

    # -- publishing

    cdef void on_publish(self, Frame* frame) noexcept:
        cdef Message msg
        cdef uint32_t reached
        self.in_msgs += 1
        self.in_bytes += frame.size
        if self.pedantic and not literal_subject(frame.subject.p, frame.subject.n):
            self.error("Invalid Publish Subject")
        msg.subject = frame.subject.p
        msg.subject_len = frame.subject.n
        msg.reply = frame.reply.p
        msg.reply_len = frame.reply.n
        msg.body = frame.body
        msg.size = frame.size
        msg.hdr_len = frame.hdr_len
        msg.sizes = frame.sizes.p
        msg.sizes_len = frame.sizes.n
        if msg.hdr_len and asks_for_trace(msg.body, msg.hdr_len, self.samples):
            self.publish_traced(&msg)
            return
        if self.maps:
            self.map_subject(&msg)
        # Permissions apply to the subject that the message is routed by, as in the reference.
        if (self.guards_publish and not self.may_publish(msg.subject, msg.subject_len)
                or reserved_subject(msg.subject, msg.subject_len, self.in_system_account)):
            self.handler.publish_refused(text_of(msg.subject, msg.subject_len))
            return
        if msg.reply_len and reserved_reply(msg.reply, msg.reply_len):
            self.handler.reply_refused(text_of(msg.reply, msg.reply_len))
            return
        if self.verbose:
            self.ok()
        if frame.sizes.n == 0:
            self.route_uneven(frame, &msg)
        else:
            reached = self.router.route(self.interest, &self.sink, &msg)
            if reached == 0 and msg.reply_len and self.no_responders:
                self.router.no_responders(self.interest, &self.sink, &msg)
        if self.router.nspent:
            remove_exhausted_subs(self.router)

    cdef int publish_traced(self, Message* asked) except -1:
        """Publish a message whose header may request a trace, using Python values."""
        cdef str subject = text_of(asked.subject, asked.subject_len)
        cdef str reply = text_of(asked.reply, asked.reply_len)
        cdef Parcel parcel
        cdef uint32_t reached
        self.router.turn.work += WORK_PER_LOOK
        trace, header = self.handler.begin_trace(asked.body[:asked.hdr_len], subject, asked.size)
        if header is None:
            return 0
        parcel = Parcel(subject, asked.body[asked.hdr_len:asked.size], reply, header)
        if self.maps:
            self.map_subject(&parcel.msg)
            mapped = text_of(parcel.msg.subject, parcel.msg.subject_len)
            if trace is not None and mapped != subject:
                trace.mapped(mapped)
            subject = mapped
        if (self.guards_publish and not self.may_publish(parcel.msg.subject, parcel.msg.subject_len)
                or reserved_subject(parcel.msg.subject, parcel.msg.subject_len,
                                    self.in_system_account)):
            self.handler.publish_refused(subject)
            if trace is not None:
                trace.refused_publish(subject)
        elif reply and reserved_reply(parcel.msg.reply, parcel.msg.reply_len):
            self.handler.reply_refused(reply)
            if trace is not None:
                trace.refused_reply(reply)
        else:
            if self.verbose:
                self.ok()
            reached = (self.router.route(self.interest, &self.sink, &parcel.msg) if trace is None else
                       self.router.route_traced(self.interest, &self.sink, &parcel.msg, trace))
            if reached == 0 and reply and self.no_responders:
                self.router.no_responders(self.interest, &self.sink, &parcel.msg)
        if trace is not None:
            trace.release()
        remove_exhausted_subs(self.router)
        return 0

    cdef int map_subject(self, Message* msg) except -1:
        """Replace the subject with the result of the account's mappings.

        A message that no destination takes gets the empty subject, which matches no subscription.
        """
        self.router.turn.work += ASK_WORK
        subject = self.handler.mapped(text_of(msg.subject, msg.subject_len))
        self.mapped = b"" if subject is None else subject.encode("utf-8", "surrogateescape")
        msg.subject = self.mapped
        msg.subject_len = len(self.mapped)
        return 0

    cdef void route_uneven(self, Frame* frame, Message* msg) noexcept:
        """Route a frame whose line end cannot be copied (extra blanks, bare LF): rebuild it."""
        cdef bytes sizes = frame.reply.p[:frame.reply.n] + b" " if frame.reply.n else b""
        cdef int last = frame.nargs - 1
        if frame.hdr_len:
            sizes += frame.args[last - 1].p[:frame.args[last - 1].n] + b" "
        sizes += frame.args[last].p[:frame.args[last].n] + b"\r\n"
        msg.sizes = sizes
        msg.sizes_len = len(sizes)
        if (self.router.route(self.interest, &self.sink, msg) == 0 and msg.reply_len
                and self.no_responders):
            self.router.no_responders(self.interest, &self.sink, msg)

    cdef bint may_publish(self, const char* subject, size_t n) noexcept:
        if ((self.pub_allow is None or self.pub_allow.interested(subject, n))
                and (self.pub_deny is None or not self.pub_deny.interested(subject, n))):
            return True
        if not self.may_respond:
            return False
        self.router.turn.work += ASK_WORK
        return self.handler.may_respond(text_of(subject, n))

    # -- subscribing

    cdef int on_sub(self, Frame* frame) except -1:
        cdef size_t queue_len = 0
        cdef const char* queue = NULL
        cdef const char* subject = frame.args[0].p
        cdef size_t n = frame.args[0].n
        cdef uint32_t flags = 0
        cdef Sub* sub
        cdef int last = frame.nargs - 1
        if frame.nargs < 2 or frame.nargs > 3:
            self.close("Protocol Violation")
            return 0
        if frame.nargs == 3:
            queue = frame.args[1].p
            queue_len = frame.args[1].n
        if self.guards_subscribe or (queue_len == 5 and memcmp(queue, b"_sys_", 5) == 0):
            self.router.turn.work += ASK_WORK
            flags = self.check_sub(text_of(subject, n),
                                   text_of(queue, queue_len) if queue_len else None,
                                   text_of(frame.args[last].p, frame.args[last].n))
            if flags & SUB_REMOVED:
                return 0
        if self.max_sub_tokens and count_tokens(subject, n) > self.max_sub_tokens:
            self.handler.tokens_exceeded(text_of(subject, n),
                                         text_of(frame.args[last].p, frame.args[last].n))
            return 0
        if self.max_subs and self.sids.count >= self.max_subs:
            self.handler.subscriptions_exceeded()
            return 0
        if sid_find(&self.sids, frame.args[last].p, frame.args[last].n) == NULL:
            if not valid_pattern(subject, n):
                self.error("Invalid Subject")
                return 0
            sub = new_sub(SUB_SINK, &self.sink, frame.args[last].p, frame.args[last].n)
            sub.flags = flags
            self.interest.add(sub, subject, n, queue, queue_len)
            sid_add(&self.sids, sub)
            if self.imports:
                self.router.turn.work += ASK_WORK
                self.handler.subscribed(text_of(sub_sid(sub), sub.sid_len), text_of(subject, n),
                                        text_of(queue, queue_len) if queue_len else None)
        if self.verbose:
            self.ok()
        return 0

    def check_sub(self, str subject, queue, str sid) -> int:
        """Return the subscription's flags; SUB_REMOVED: refused and reported to the client."""
        if queue != "_sys_":
            verdict = self.handler.may_subscribe(subject, queue)
            if verdict == SUBSCRIBE_ALLOWED:
                return 0
            if verdict == SUBSCRIBE_FILTERED:
                return SUB_FILTERED
        self.handler.subscribe_refused(subject, queue, sid)
        return SUB_REMOVED

    cdef void on_unsub(self, Frame* frame) noexcept:
        cdef Sub* sub
        cdef long maximum = -1
        if frame.nargs < 1 or frame.nargs > 2:
            self.close("Protocol Violation")
            return
        if frame.nargs == 2:
            maximum = parse_size(frame.args[1].p, frame.args[1].n)
        sub = sid_find(&self.sids, frame.args[0].p, frame.args[0].n)
        if sub != NULL:
            if maximum > 0 and <uint64_t>maximum > sub.delivered:
                sub.max_deliver = maximum
            else:
                self.remove_sub(sub)
        if self.verbose:
            self.ok()

    cdef void remove_sub(self, Sub* sub) noexcept:
        sid_remove(&self.sids, sub)
        self.interest.drop(sub)
        if self.imports:
            self.router.turn.work += ASK_WORK
            self.handler.unsubscribed(text_of(sub_sid(sub), sub.sid_len))

    # -- called by the router

    cdef bint delivery_denied(self, Sub* sub, Message* msg):
        if self.deliver_deny is None or not self.deliver_deny.interested(msg.subject, msg.subject_len):
            return False
        self.router.turn.work += ASK_WORK
        return self.handler.delivery_denied(text_of(msg.subject, msg.subject_len), sub_queue(sub))

    cdef void trace_delivery(self, Sub* sub, Message* msg):
        verb = "HMSG" if msg.hdr_len else "MSG"
        sid = text_of(sub_sid(sub), sub.sid_len)
        sizes = text_of(msg.sizes, msg.sizes_len).strip()
        self.handler.trace("->>", f"{verb} {text_of(msg.subject, msg.subject_len)} {sid} {sizes}")
        self.handler.trace_payload("->>", msg.body[:msg.size], msg.hdr_len)

    cdef void note_reply(self, Message* msg):
        self.router.turn.work += ASK_WORK
        self.handler.note_reply(text_of(msg.reply, msg.reply_len))


cdef void remove_exhausted_subs(Router router) noexcept:
    """Remove subscriptions that reached their delivery limit, on whichever link they are."""
    cdef uint32_t i
    cdef Sub* sub
    for i in range(router.nspent):
        sub = router.spent[i]
        if not sub.flags & SUB_REMOVED:
            (<ClientLink>(<Sink*>sub.owner).owner).remove_sub(sub)
    router.nspent = 0
