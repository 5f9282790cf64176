"""The plane: the sockets of all links, and the turn that serves them.

All client sockets are in one epoll set of the plane's own, and that set's descriptor is what the
event loop watches: one callback per turn, whatever the number of busy connections. A turn reads
each ready socket once into a shared buffer, lets its link obey what came, then flushes every
outbox that was written to, then buries the links that are to close. Sends are direct; when a
socket takes no more, the rest stays in its outbox until epoll says it takes some again. Where
being woken is dear, a turn lingers a moment over a conversation of one word at a time.

One thread owns a plane. Everything is bounded: what a link may have pending (max_pending), what
it may keep of an unfinished frame (its control line and payload limits), what a turn reads.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from libc.errno cimport EAGAIN, ECONNRESET, EINTR, errno
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

import os

from penstock.broker.outbox cimport out_append, out_clear
from penstock.broker.router cimport (
    NOT_SETTLED, SETTLED, SINK_DIRTY, Lane, Parcel, Router, Settled,
)
from penstock.subjects.nodes cimport xalloc
from penstock.subjects.trie cimport SubList

from penstock.server.link cimport settle_spent
from penstock.server.posix cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, EPOLLOUT, MSG_DONTWAIT, SHUT_WR, c_close,
    epoll_create1, epoll_ctl, epoll_event, epoll_wait, monotonic_ns, recv, shutdown, wall_ns,
)

from penstock.server.codecs.contract import CodecEnd
from penstock.server.logs import log

cdef enum:
    EVENTS_PER_TURN = 512
    READ_BYTES = 131072            # taken from a socket at once
    READS_STORED = 4               # of one socket in one turn, if a stream takes it in: fewer syncs
    READS_SPREAD = 3               # if it speaks alone, to several: fewer and fuller sends
    LARGE_FRAME_BYTES = 65536      # a frame from this size on is read into memory of its own
    CARRY_KEPT_BYTES = 512
    DOUBT_STEP = 4                 # turns slept through after an answer that did not come
    DOUBT_MAX = 1024

# A conversation: see `linger`.
cdef int64_t ANSWER_NS = 200_000               # who speaks this soon after us, answers
cdef int64_t CHEAP_WAKE_NS = 20_000            # answered this soon although we slept: sleep on
cdef int64_t SPIN_NS = 60_000                  # looked out for an answer, awake
cdef int64_t LINGER_NS = 1_000_000             # kept from the event loop
cdef int64_t NOTABLE_NS = 50_000               # a shorter wait for the disk tells nothing
cdef int64_t STALL_NS = 2_000_000              # a publisher ahead of its readers waits this long


cdef class Plane(InternalCalls):
    """All links of one server. `fileno()` is to be watched for reading; `turn` serves it."""

    def __cinit__(self, *, Router router not None, arm, int64_t write_deadline_ns,
                  bint stall_publishers=True):
        self.epfd = -1
        self.router = router
        self.arm = arm
        self.write_deadline_ns = write_deadline_ns
        self.stall_publishers = stall_publishers
        self.links = {}
        self.doomed = []
        self.interests = []
        self.stalled = []
        self.blocked = []
        self.backlogged = []
        self.on_deadline = self.give_up_overdue
        self.on_rest = self.run_rest
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, os.strerror(errno))
        # A frame's kept start is copied in front of what is read next.
        self.buffer = <char*>xalloc(READ_BYTES + LARGE_FRAME_BYTES)
        self.router.now_ns = monotonic_ns()

    def __dealloc__(self):
        if self.epfd >= 0:
            c_close(self.epfd)
        free(self.buffer)

    def fileno(self) -> int:
        return self.epfd

    def __len__(self) -> int:
        return len(self.links)

    def all_links(self) -> list:
        return list(self.links.values())

    def add_interest(self, SubList interest not None) -> None:
        """A subject space that links live in."""
        self.interests.append(interest)

    def set_write_deadline(self, int64_t write_deadline_ns) -> None:
        self.write_deadline_ns = write_deadline_ns

    def attach(self, int fd, uint64_t cid, handler, SubList interest not None, *,
               codec=None) -> Link:
        """Takes over a connected non-blocking socket; the plane closes it."""
        cdef Link link = Link(cid, handler, self.router, self.doomed, interest)
        link.codec = codec
        link.fd = fd
        link.last_active_ns = monotonic_ns()
        self.links[cid] = link
        cdef epoll_event event
        event.events = link.events = EPOLLIN
        event.data.ptr = <void*>link
        if epoll_ctl(self.epfd, EPOLL_CTL_ADD, fd, &event) < 0:
            failure = OSError(errno, os.strerror(errno))
            del self.links[cid]
            c_close(fd)
            raise failure
        return link

    def close_all(self, str reason not None) -> None:
        for link in self.all_links():
            link.close(reason)
        self.settle()

    # -- the turn

    def turn(self) -> None:
        """Serves every socket that is ready, once; and again while a conversation goes on."""
        cdef epoll_event events[EVENTS_PER_TURN]
        cdef int n = epoll_wait(self.epfd, events, EVENTS_PER_TURN, 0)
        cdef int64_t now = monotonic_ns()
        cdef int64_t until = now + LINGER_NS
        cdef bint slow_wake = now - self.answered_ns >= CHEAP_WAKE_NS
        cdef bint conversing
        self.router.asked = False
        while True:
            conversing = slow_wake and self.is_answer(events, n, now)
            self.serve(events, n, now)
            if not conversing or self.router.asked or now >= until:
                return
            n = self.linger(events)
            if n <= 0:
                return
            now = monotonic_ns()

    cdef bint is_answer(self, epoll_event* events, int n, int64_t now) noexcept:
        """Somebody speaks who was spoken to in the turn before, a moment ago, and nobody else."""
        return (n == 1 and now - self.answered_ns < ANSWER_NS
                and not events[0].events & EPOLLOUT       # who takes more does not speak
                and (<Link>events[0].data.ptr).sink.progress_ns == self.served_ns)

    cdef int linger(self, epoll_event* events) except -2:
        """Looks out for the next word of a conversation, awake; answers what epoll did.

        Going to sleep and being woken can cost more than the few microseconds until the answer.
        When they were waited for in vain, the next conversations are slept through.
        """
        cdef int n = 0
        cdef int64_t until = self.answered_ns + SPIN_NS
        if self.sleeps:
            self.sleeps -= 1
            return 0
        with nogil:
            while n == 0 and monotonic_ns() < until:
                n = epoll_wait(self.epfd, events, EVENTS_PER_TURN, 0)
        if n > 0:
            self.doubt -= (self.doubt + 7) // 8
        else:
            self.doubt = self.sleeps = min(2 * self.doubt + DOUBT_STEP, <uint32_t>DOUBT_MAX)
        return n

    cdef int serve(self, epoll_event* events, int n, int64_t now) except -1:
        cdef Link link
        cdef int i
        self.served_ns = self.router.now_ns = now
        self.router.wall_ns = wall_ns()
        self.events = n
        self.turning += 1
        try:
            for i in range(n):
                link = <Link>events[i].data.ptr
                if events[i].events & EPOLLOUT:
                    self.flush(link)
                if events[i].events & ~(<uint32_t>EPOLLOUT):
                    self.readable(link)
        finally:
            self.turning -= 1
        self.finish()
        self.answered_ns = monotonic_ns()     # the disk may have been waited for meanwhile
        return 0

    def settle(self) -> None:
        """Flushes and buries what was decided outside a turn."""
        if self.turning == 0:
            self.router.now_ns = monotonic_ns()
            self.router.wall_ns = wall_ns()
            self.finish()

    def run_rest(self) -> None:
        """Run the calls that an earlier turn left."""
        self.rest_armed = False
        self.settle()

    def give_up_overdue(self) -> None:
        """Time has passed: writes that are overdue are given up."""
        self.close_overdue()
        self.settle()

    def resume_stalled(self) -> None:
        """Publishers that were held back have waited long enough."""
        cdef Link link
        waiting, self.stalled = self.stalled, []
        for link in waiting:
            link.stalled = False
            self.listen(link)

    cdef int finish(self) except -1:
        cdef Link link
        cdef SubList interest
        self.turning += 1
        try:
            if self.router.lanes:
                self.settle_lanes()
            if self.is_stirred():
                self.run_calls()
            self.flush_dirty()
            while self.doomed:
                batch = self.doomed[:]
                self.doomed.clear()
                for link in batch:
                    self.bury(link)
                if self.is_stirred():
                    self.run_calls()
                self.flush_dirty()
            for interest in self.interests:
                interest.reclaim()
        finally:
            self.turning -= 1
        return 0

    cdef bint is_stirred(self) noexcept:
        """Whether anything happened that code of this process wants to know of."""
        cdef SubList interest
        if self.router.calls or self.router.lanes:
            return True
        if self.epilogue is not None:
            for interest in self.interests:
                if interest.interest_changes:
                    return True
        return False

    cdef int settle_lanes(self) except -1:
        """Lets lanes finish what they took, as far as they can; the rest is for the epilogue."""
        cdef Lane lane
        lanes, self.router.lanes = self.router.lanes, []
        for lane in lanes:
            lane.stirred = False      # what it sends may come back to it
            if lane.behind or not self.settles(lane):
                self.router.stir(lane)
        settle_spent(self.router)
        return 0

    cdef bint settles(self, Lane lane) except -1:
        cdef int64_t began, span
        cdef Settled settled = NOT_SETTLED
        if lane.waits and (self.pace is None or not self.pace.is_quick):
            return False
        began = monotonic_ns()
        try:
            settled = lane.settle()
        except Exception:
            log.exception("a commit failed")
        span = monotonic_ns() - began
        if lane.waits and settled != NOT_SETTLED and span >= NOTABLE_NS:
            self.pace.took(span)
        return settled == SETTLED

    def settle_spent(self) -> None:
        """Subscriptions to which compiled lanes gave their last message go."""
        if self.router.nspent:
            settle_spent(self.router)

    def changed_interests(self) -> list:
        """Where somebody came or went that is watched for; few, of thousands of accounts."""
        cdef SubList interest
        return [interest for interest in self.interests if interest.interest_changes]

    def set_pace(self, pace) -> None:
        """Who knows whether the disk is quick (`is_quick`), and is told what it `took`."""
        self.pace = pace

    def publish(self, SubList interest not None, str subject not None, bytes payload not None, *,
                str reply="", bytes header=b"") -> int:
        """Sends a message of the server's own; answers how many it reached."""
        cdef int reached = self.post(interest, subject, payload, reply, header)
        self.settle()
        return reached

    cpdef int post(self, SubList interest, str subject, bytes payload, str reply="",
                   bytes header=b"", str to=None) except -1:
        """As `publish`, but left to be flushed by the next `settle` or the end of the turn.

        With `to`, those get it who listen there; they see the message under `subject`.
        """
        cdef Parcel parcel = Parcel(subject, payload, reply, header)
        cdef bytes to_raw = parcel.subject if to is None else to.encode("utf-8", "surrogateescape")
        cdef int reached = self.router.route_to(interest, NULL, &parcel.msg, to_raw, len(to_raw))
        settle_spent(self.router)
        return reached

    def pass_on(self, SubList interest not None, str subject not None, bytes payload not None,
                str reply, bytes header, str to not None, Link source) -> int:
        """As `post`, for what was published in another account, by `source`.

        It is not imported again: who listens from a third account does not get it.
        """
        cdef Parcel parcel = Parcel(subject, payload, reply, header)
        cdef bytes to_raw = to.encode("utf-8", "surrogateescape")
        cdef int reached
        self.router.importing = True
        reached = self.router.route_to(interest, NULL if source is None else &source.sink,
                                       &parcel.msg, to_raw, len(to_raw))
        self.router.importing = False
        settle_spent(self.router)
        return reached

    # -- reading

    cdef int readable(self, Link link) except -1:
        cdef uint64_t written = self.router.written
        self.reads = 1
        if link.held:
            # Nobody asked: epoll says that the peer has gone. What it sent is not wanted any more,
            # and the read buffer has no room behind all that a held link may have kept.
            link.close("Client Closed")
            return 0
        try:
            if link.codec is None:
                while self.take_plain(link) and self.reads < self.reads_wanted(written):
                    self.reads += 1
            else:
                self.take_encoded(link)
        except CodecEnd as end:
            self.codec_ended(link, end)
        except Exception as error:      # a bug of ours costs one connection, not the server
            link.handler.failed(error)
        if self.router.urgent != NULL:
            self.flush_urgent()
        if self.router.pressure:
            self.router.pressure = False
            self.hold_back(link)
        return 0

    cdef uint32_t reads_wanted(self, uint64_t written) noexcept:
        """How often a link that has more is read in this turn; `written` is from before."""
        if self.router.lanes:
            return READS_STORED
        if self.events == 1 and self.router.written - written > 2 * self.reads * READ_BYTES:
            return READS_SPREAD
        return 1

    cdef ssize_t receive(self, Link link, char* at, size_t room) except -2:
        """Bytes read; 0: nothing to do now, also when the peer has gone."""
        cdef ssize_t n = recv(link.fd, at, room, MSG_DONTWAIT)
        if n > 0:
            link.last_active_ns = self.router.now_ns
            return n
        if n == 0:
            link.close("Client Closed")
        elif errno != EAGAIN and errno != EINTR:
            link.close("Client Closed" if errno == ECONNRESET else "Read Error")
        return 0

    cdef bint take_plain(self, Link link) except -1:
        """Reads once; answers whether more may be waiting."""
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
        return n == READ_BYTES and link.close_reason is None and not self.router.pressure

    cdef int take_encoded(self, Link link) except -1:
        cdef ssize_t n = self.receive(link, self.buffer, READ_BYTES)
        cdef bytes plain
        if n <= 0:
            return 0
        plain = link.codec.receive(PyBytes_FromStringAndSize(self.buffer, n))
        self.router.mark_dirty(&link.sink)      # the codec may have something to say itself
        if not link.transport_ready and link.codec.established:
            link.transport_ready = self.router.asked = True
            link.handler.transport_established()
        while True:
            if plain:
                self.feed(link, plain)
            if link.close_reason is not None or not link.codec.pending:
                return 0
            plain = link.codec.receive(b"")

    cdef int codec_ended(self, Link link, end) except -1:
        """The transport is over; what came before its end counts."""
        if end.received:
            self.feed(link, end.received)
        link.handler.codec_ended(end)
        return 0

    def feed(self, Link link not None, bytes plain not None) -> None:
        """Protocol bytes that came some other way than straight from the socket."""
        cdef size_t n = PyBytes_GET_SIZE(plain)
        if link.need >= LARGE_FRAME_BYTES and link.carry_len + n <= link.carry_cap:
            # The rest of a large frame: its room is there, so it is not copied as a whole again.
            memcpy(link.carry + link.carry_len, PyBytes_AS_STRING(plain), n)
            link.carry_len += n
            if link.carry_len >= link.need:
                self.received(link, link.carry, link.carry_len)
            return
        if link.carry_len:
            plain = link.carry[:link.carry_len] + plain
        self.received(link, PyBytes_AS_STRING(plain), PyBytes_GET_SIZE(plain))

    cdef int received(self, Link link, char* base, size_t n) except -1:
        cdef size_t used = link.consume(base, n)
        while self.router.crowded:
            # Much waits for somebody who may well be reading: it goes out before more is made.
            self.router.crowded = False
            self.flush_urgent()
            used += link.consume(base + used, n - used)
        if used == n or link.close_reason is not None:
            link.carry_len = 0
            if link.carry_cap > CARRY_KEPT_BYTES:
                free(link.carry)
                link.carry = NULL
                link.carry_cap = 0
            return 0
        return self.keep_rest(link, base + used, n - used)

    cdef int keep_rest(self, Link link, char* rest, size_t n) except -1:
        """Keeps the start of an unfinished frame, with room for all of it if it is large."""
        cdef size_t room = link.need if link.need >= LARGE_FRAME_BYTES else n
        cdef char* fresh
        room = max(room, n)
        if link.carry_cap < room:
            fresh = <char*>xalloc(max(room, <size_t>CARRY_KEPT_BYTES))
            memcpy(fresh, rest, n)
            free(link.carry)
            link.carry = fresh
            link.carry_cap = max(room, <size_t>CARRY_KEPT_BYTES)
        else:
            memmove(link.carry, rest, n)
        link.carry_len = n
        return 0

    def hold(self, Link link not None) -> None:
        """Nothing more is heard from the link until release: a decision about it is pending."""
        link.held = True
        self.listen(link)

    def release(self, Link link not None) -> None:
        if link.closed or not link.held:
            return
        link.held = False
        self.listen(link)
        if link.carry_len:
            self.feed(link, b"")
        self.settle()

    cdef int hold_back(self, Link link) except -1:
        """Some receiver of this publisher is near its limit: give it a moment."""
        if not self.stall_publishers or link.stalled or link.close_reason is not None:
            return 0
        link.stalls += 1
        self.stalled_clients += 1
        link.stalled = True
        self.listen(link)
        if not self.stalled:
            self.arm(STALL_NS / 1e9, self.resume_stalled)
        self.stalled.append(link)
        return 0

    # -- closing

    cdef int bury(self, Link link) except -1:
        """Closes the socket and forgets the link; its last words are sent if the socket takes them."""
        if link.closed:
            return 0
        if link.codec is None:
            self.drain(link, &link.sink.out)
        else:
            self.flush(link)
            try:
                farewell = link.codec.farewell(link.close_reason)
            except Exception:     # its last words must not keep others from being buried
                log.exception("closing a transport failed")
                farewell = b""
            out_append(&self.router.pool, &link.encoded, farewell, len(farewell))
            self.drain(link, &link.encoded)
        self.router.asked = True
        link.closed = True
        epoll_ctl(self.epfd, EPOLL_CTL_DEL, link.fd, NULL)
        shutdown(link.fd, SHUT_WR)
        c_close(link.fd)
        self.in_msgs_closed += link.in_msgs
        self.in_bytes_closed += link.in_bytes
        self.out_msgs_closed += link.sink.out_msgs
        self.out_bytes_closed += link.sink.out_bytes
        out_clear(&self.router.pool, &link.sink.out)
        out_clear(&self.router.pool, &link.encoded)
        free(link.carry)
        link.carry = NULL
        link.carry_len = link.carry_cap = 0
        try:
            link.handler.closed(link.close_reason)    # which still sees the subscriptions
        except Exception:
            log.exception("closing a session failed")
        link.drop_subscriptions()
        self.forget(link)
        return 0

    cdef int forget(self, Link link) except -1:
        """A flush list may still name the link's sink; it must not outlive the link."""
        if link.sink.flags & SINK_DIRTY:
            self.flush_dirty()
        del self.links[link.cid]
        return 0
