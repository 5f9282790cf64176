"""SocketReader: reads sockets and passes the bytes to links, in slices.

A turn reads each ready socket into a shared buffer and lets its link execute the complete frames.
The time for that is bounded: if a link has more input when the turn is over, or its codec has more
to give out, the link is deferred. It is not read again before a later turn has processed the rest.
So a peer can make the server buffer at most one read and what the codec holds, and bytes keep their
order.

The IoLoop sets the attributes and calls `readable` for ready sockets. Between turns it calls
`continue_deferred`.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, ECONNRESET, EINTR, errno
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from penstock.broker.router cimport is_pressed
from penstock.subjects.trie_nodes cimport xalloc

from penstock.server.net.client_link cimport WORK_PER_LOOK
from penstock.server.net.posix cimport MSG_DONTWAIT, monotonic_ns, recv

from penstock.server.net.codecs.contract import CodecEnd

cdef enum:
    READS_STORED = 4               # reads per socket and turn if a stream stores it: fewer syncs
    READS_SPREAD = 3               # if it alone is ready, with fan-out: fewer and fuller sends
    CARRY_KEPT_BYTES = 512
    CARRY_SLACK = 4                # the carry buffer may be this many times the kept bytes

cdef int64_t STALL_NS = 2_000_000              # interval of checks on stalled publishers
cdef int64_t STALL_FACTOR = 8                  # stall for this many times the turn's time so far
cdef int64_t STALL_MAX_NS = 100_000_000


cdef class SocketReader(InternalCalls):
    """The reading half of an IoLoop, which sets the attributes."""

    cdef int readable(self, ClientLink link) except -1:
        """Read a socket that epoll reported, and process the input."""
        if link.deferred or link.close_reason is not None:
            return 0     # earlier bytes come first; a closing link processes nothing
        if link.held:
            # A held link is not polled for input, so epoll reports here that the peer closed. Its
            # bytes are discarded: the read buffer has no room after all that it may have kept.
            link.close("Client Closed")
            return 0
        return self.obey(link, False)

    cdef int obey(self, ClientLink link, bint resumed) except -1:
        """Process one link's input; an internal error closes the link, not the server."""
        cdef uint64_t written = self.state.written
        self.reads = 1
        try:
            if resumed:
                self.resume(link)
            elif link.codec is None:
                while self.take_plain(link) and self.reads < self.reads_wanted(written):
                    self.reads += 1
            else:
                self.take_encoded(link)
        except Exception as error:
            link.handler.failed(error)
        if link.ended is not None and not link.deferred and not link.held:
            link.handler.codec_ended(link.ended)
            link.ended = None
        if self.state.urgent != NULL:
            self.flush_urgent()
        if self.state.pressed != NULL:
            self.hold_back(link, <ClientLink>self.state.pressed.owner)
            self.state.pressed = NULL
        return 0

    cdef int defer(self, ClientLink link) except -1:
        """Leave the rest of the link's received bytes for a later turn."""
        link.deferred = True
        return self.listen(link)

    cdef int continue_deferred(self) except -1:
        """Process what earlier turns left, one slice per link, while the turn has time."""
        cdef ClientLink link
        cdef Py_ssize_t done = 0
        waiting, self.deferred = self.deferred, []
        for link in waiting:
            done += 1
            link.awaits_turn = False
            if (not link.deferred or link.close_reason is not None or link.held or link.stalled
                    or link.backlogged or link.paused):
                continue         # `listen` lists the link again when that state ends
            self.obey(link, True)
            if done < len(waiting) and self.out_of_time():
                break
        self.deferred = waiting[done:] + self.deferred
        if self.deferred:
            self.continue_later()
        return 0

    cdef int resume(self, ClientLink link) except -1:
        link.deferred = False
        if link.carry_len:
            self.received(link, link.carry, link.carry_len)
        if link.codec is not None:
            self.obey_decoded(link, b"")
        return self.listen(link)

    cdef bint out_of_time(self) noexcept:
        self.state.work = 0
        return monotonic_ns() >= self.until_ns

    cdef uint32_t reads_wanted(self, uint64_t written) noexcept:
        """Return how many reads this turn allows; `written` is the router's count from before."""
        if self.state.lanes:
            return READS_STORED
        if self.events == 1 and self.state.written - written > 2 * self.reads * READ_BYTES:
            return READS_SPREAD
        return 1

    cdef ssize_t receive(self, ClientLink link, char* at, size_t room) except -2:
        """Return the number of bytes read; 0: nothing to do now, also when the peer closed."""
        cdef ssize_t n = recv(link.fd, at, room, MSG_DONTWAIT)
        if n > 0:
            link.last_active_ns = self.state.now_ns
            return n
        if n == 0:
            link.close("Client Closed")
        elif errno != EAGAIN and errno != EINTR:
            link.close("Client Closed" if errno == ECONNRESET else "Read Error")
        return 0

    cdef bint take_plain(self, ClientLink link) except -1:
        """Read once; return whether another read in this turn may bring more."""
        cdef ssize_t n
        cdef size_t kept = link.carry_len
        if kept and link.need >= LARGE_FRAME_BYTES:
            n = self.receive(link, link.carry + kept, link.carry_cap - kept)
            if n > 0:
                link.carry_len += n
                if link.carry_len >= link.need:
                    self.received(link, link.carry, link.carry_len)
            return False
        if kept:
            memcpy(self.buffer, link.carry, kept)
        n = self.receive(link, self.buffer + kept, READ_BYTES)
        if n > 0:
            self.received(link, self.buffer, kept + n)
        # A held or deferred link may have kept more bytes than the buffer has room for.
        return (n == READ_BYTES and link.close_reason is None and self.state.pressed == NULL
                and not link.held and not link.deferred)

    cdef int take_encoded(self, ClientLink link) except -1:
        cdef ssize_t n = self.receive(link, self.buffer, READ_BYTES)
        cdef bytes plain
        if n <= 0:
            return 0
        plain = self.decode(link, PyBytes_FromStringAndSize(self.buffer, n))
        if not link.transport_ready and link.codec.established:
            link.transport_ready = self.state.ran_python = True
            link.handler.transport_established()
        return self.obey_decoded(link, plain)

    cdef bytes decode(self, ClientLink link, bytes data):
        """Return the next decoded bytes, including those received before the transport ended."""
        self.router.mark_dirty(&link.sink)      # the codec may have output of its own
        try:
            return link.codec.receive(data)
        except CodecEnd as end:
            link.ended = end
            return end.received

    cdef int obey_decoded(self, ClientLink link, bytes plain) except -1:
        """Process decoded bytes; a later turn handles what the codec still holds.

        So other clients are served after each portion that a codec returns, even if a few
        compressed bytes inflate to very many.
        """
        if not plain and link.codec.pending and not link.deferred and not link.held:
            plain = self.decode(link, b"")
        if plain and link.close_reason is None:
            self.feed(link, plain)
        if link.codec.pending and link.close_reason is None and not link.deferred:
            self.defer(link)
        return 0

    def feed(self, ClientLink link not None, bytes plain not None) -> None:
        """Process protocol bytes that did not come directly from the socket."""
        cdef size_t n = PyBytes_GET_SIZE(plain)
        if link.need >= LARGE_FRAME_BYTES and link.carry_len + n <= link.carry_cap:
            # The rest of a large frame goes into its allocated buffer, without another full copy.
            memcpy(link.carry + link.carry_len, PyBytes_AS_STRING(plain), n)
            link.carry_len += n
            if link.carry_len >= link.need:
                self.received(link, link.carry, link.carry_len)
            return
        if link.carry_len:
            plain = link.carry[:link.carry_len] + plain
        self.received(link, PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))

    cdef int received(self, ClientLink link, char* base, size_t n) except -1:
        """Let the link execute complete frames while the turn has time; keep the rest."""
        cdef size_t used = link.consume(base, n)
        while True:
            if self.state.crowded:
                # Much waits for a client that may well be reading: send it before producing more.
                self.state.crowded = False
                self.flush_urgent()
            elif self.state.work < WORK_PER_LOOK:
                break
            if self.out_of_time():
                if used < n and link.close_reason is None and not link.held:
                    self.defer(link)
                break
            used += link.consume(base + used, n - used)
        if used == n or link.close_reason is not None:
            link.carry_len = 0
            if link.carry_cap > CARRY_KEPT_BYTES:
                free(link.carry)
                link.carry = NULL
                link.carry_cap = 0
            return 0
        return self.keep_rest(link, base + used, n - used)

    cdef int keep_rest(self, ClientLink link, char* rest, size_t n) except -1:
        """Keep unprocessed bytes, with room for the whole frame if the frame is large."""
        cdef size_t room = link.need if link.need >= LARGE_FRAME_BYTES else n
        cdef char* fresh
        room = max(room, max(n, <size_t>CARRY_KEPT_BYTES))
        if link.carry_cap < room or link.carry_cap // CARRY_SLACK > room:
            fresh = <char*>xalloc(room)
            memcpy(fresh, rest, n)
            free(link.carry)
            link.carry = fresh
            link.carry_cap = room
        else:
            memmove(link.carry, rest, n)
        link.carry_len = n
        return 0

    def hold(self, ClientLink link not None) -> None:
        """Stop reading the link until `release`: a decision about it is pending."""
        link.held = True
        self.listen(link)

    def release(self, ClientLink link not None) -> None:
        if link.closed or not link.held:
            return
        link.held = False
        self.listen(link)
        if link.close_reason is None and (link.carry_len or link.deferred or link.codec is not None):
            self.until_ns = monotonic_ns()       # one slice of work, then other clients
            self.obey(link, True)
        self.flush_and_close()

    cdef int hold_back(self, ClientLink link, ClientLink receiver) except -1:
        """Stop reading a publisher for a while, because that receiver is near its limit.

        The stall lasts STALL_FACTOR times the time since the turn began, which is about what its
        messages took to deliver.
        """
        cdef int64_t now = monotonic_ns()
        cdef int64_t span = min(STALL_FACTOR * (now - self.state.now_ns), STALL_MAX_NS)
        if not self.stall_publishers or link.stalled or link.close_reason is not None:
            return 0
        link.stalls += 1
        self.stalled_clients += 1
        link.stalled = True
        self.listen(link)
        if not self.stalled:
            self.arm(STALL_NS / 1e9, self.resume_stalled)
        self.stalled.append((link, receiver, now + span))
        return 0

    def resume_stalled(self) -> None:
        """Resume publishers whose receiver has room or is stuck, or whose stall time is over."""
        cdef ClientLink link, receiver
        cdef int64_t until, now = monotonic_ns()
        waiting, self.stalled = self.stalled, []
        for link, receiver, until in waiting:
            if now < until and link.close_reason is None and is_pressed(&receiver.sink, now):
                self.stalled.append((link, receiver, until))
                continue
            link.stalled = False
            self.listen(link)
        if self.stalled:
            self.arm(STALL_NS / 1e9, self.resume_stalled)
