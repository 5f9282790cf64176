"""IoLoop: the sockets of all client links, and the turn that serves them.

All client sockets are in one epoll set, and the event loop watches only that set's descriptor: one
callback per turn for any number of busy connections. A turn reads each ready socket
(`socket_reader.pyx`), runs internal subscribers (`internal_calls.pyx`), flushes dirty outboxes
(`socket_writer.pyx`), then closes links. Where waking up is slow, a turn busy-waits a moment for
the answer of a single peer (`linger`).

Every part of a turn has a time limit. `continue_work` continues unprocessed input, unsent outboxes,
links to close and subscriptions to drop; it alternates with normal turns.

One thread owns an IoLoop. Memory is bounded: pending output per link (max_pending), received bytes
per link (one read, its control line and payload limits), and bytes read per turn.
"""

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint64_t
from libc.stdlib cimport free

import os

from penstock.broker.outbox cimport out_append, out_clear
from penstock.broker.router cimport (
    LANE_FINISHED, LANE_UNCOMMITTED, SINK_DIRTY, SINK_WRITABLE, Lane, LaneResult, Parcel, Router,
    TurnState,
)
from penstock.subjects.trie_nodes cimport xalloc
from penstock.subjects.trie cimport SubList

from penstock.server.net.client_link cimport DROPS_AT_ONCE, remove_exhausted_subs
from penstock.server.net.posix cimport (
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, EPOLL_CTL_DEL, EPOLLIN, EPOLLOUT, SHUT_WR, c_close,
    epoll_create1, epoll_ctl, epoll_event, epoll_wait, monotonic_ns, shutdown, wall_ns,
)
from penstock.server.net.socket_reader cimport LARGE_FRAME_BYTES, READ_BYTES
from penstock.server.net.socket_writer cimport SEND_MORE
from penstock.server.net.turn_listener cimport NOTABLE, CommitPace

from penstock.server.server_log import log

cdef enum:
    EVENTS_PER_TURN = 512
    CLOSES_PER_LOOK = 16           # links closed between two clock readings
    BACKOFF_STEP = 4               # turns without lingering after the first failed wait
    BACKOFF_MAX = 1024

# Request-reply with a single peer: see `linger`.
cdef int64_t ANSWER_NS = 200_000               # input within this time counts as an answer to us
cdef int64_t CHEAP_WAKE_NS = 20_000            # an answer this soon after a sleep: do not linger
cdef int64_t SPIN_NS = 60_000                  # busy-wait for an answer
cdef int64_t LINGER_NS = 1_000_000             # total time in which a turn may linger
cdef int64_t NOTED_NS = 1_000_000              # turns at least this long are reported
cdef int64_t TURN_NS = 5_000_000               # time for input; the rest waits for later turns
cdef int64_t CLOSE_NS = 3_000_000              # time for closing links in one turn


cdef class Sums:
    """Traffic sums of the links that share a SubList (an account)."""
    cdef ClientLink link
    cdef uint64_t in_msgs, in_bytes, out_msgs, out_bytes


@cython.final
cdef class IoLoop(SocketReader):
    """All links of one server. The event loop watches `fileno()` for reading and calls `turn`."""

    def __cinit__(self, *, Router router not None, arm, int64_t write_deadline_ns,
                  bint stall_publishers=True):
        self.epfd = -1
        self.router = router
        self.state = router.turn = TurnState()
        self.arm = arm
        self.write_deadline_ns = write_deadline_ns
        self.stall_publishers = stall_publishers
        self.links = {}
        self.closing = []
        self.interests = []
        self.stalled = []
        self.blocked = []
        self.backlogged = []
        self.deferred = []
        self.unlisted = []
        self.leaving = []
        self.on_continue = self.continue_work
        self.on_deadline = self.give_up_overdue
        self.on_rest = self.run_rest
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, os.strerror(errno))
        # The start of an incomplete frame is copied before the bytes of the next read.
        self.buffer = <char*>xalloc(READ_BYTES + LARGE_FRAME_BYTES)
        self.state.now_ns = monotonic_ns()

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

    def traffic(self) -> list:
        """Return (a link, in_msgs, in_bytes, out_msgs, out_bytes), summed per SubList (account).

        In C, so that a monitoring page does not hold the loop with very many clients.
        """
        cdef ClientLink link
        cdef Sums sums
        cdef dict by_interest = {}
        for link in self.links.values():
            if link.closed:
                continue         # counted in the totals of closed links
            sums = by_interest.get(link.interest)
            if sums is None:
                sums = by_interest[link.interest] = Sums()
                sums.link = link
            sums.in_msgs += link.in_msgs
            sums.in_bytes += link.in_bytes
            sums.out_msgs += link.sink.out_msgs
            sums.out_bytes += link.sink.out_bytes
        return [(sums.link, sums.in_msgs, sums.in_bytes, sums.out_msgs, sums.out_bytes)
                for sums in by_interest.values()]

    def add_interest(self, SubList interest not None) -> None:
        """Register a SubList that links use; `finish` reclaims its removed subscriptions."""
        self.interests.append(interest)

    def set_write_deadline(self, int64_t write_deadline_ns) -> None:
        self.write_deadline_ns = write_deadline_ns

    def attach(self, int fd, uint64_t cid, handler, SubList interest not None, *,
               codec=None) -> ClientLink:
        """Take over a connected non-blocking socket; the IoLoop closes it."""
        cdef ClientLink link = ClientLink(cid, handler, self.router, self.closing, interest)
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
        """Close every link now, when the server stops."""
        for link in self.all_links():
            link.close(reason)
        self.flush_and_close()
        while self.closing:
            self.flush_and_close()

    # -- the turn

    def turn(self) -> None:
        """Serve every ready socket once, and again while a single peer answers quickly."""
        cdef epoll_event events[EVENTS_PER_TURN]
        cdef int n = epoll_wait(self.epfd, events, EVENTS_PER_TURN, 0)
        cdef int64_t now = monotonic_ns()
        cdef int64_t until = now + LINGER_NS
        cdef bint slow_wake = now - self.answered_ns >= CHEAP_WAKE_NS
        cdef bint conversing
        self.state.ran_python = False
        while True:
            conversing = slow_wake and self.is_answer(events, n, now)
            self.serve(events, n, now)
            if not conversing or self.state.ran_python or now >= until:
                return
            n = self.linger(events)
            if n <= 0:
                return
            now = monotonic_ns()

    cdef bint is_answer(self, epoll_event* events, int n, int64_t now) noexcept:
        """True if the only ready socket is the one we sent to in the last turn, within ANSWER_NS.

        EPOLLOUT only means that the socket became writable; the peer sent nothing.
        """
        return (n == 1 and now - self.answered_ns < ANSWER_NS
                and not events[0].events & EPOLLOUT       # writable, nothing received
                and (<ClientLink>events[0].data.ptr).sink.progress_ns == self.served_ns)

    cdef int linger(self, epoll_event* events) except -2:
        """Busy-wait up to SPIN_NS for the peer's next message; return the result of epoll_wait.

        Sleeping and waking can cost more than the few microseconds until the answer. After a wait
        without an answer the next turns do not linger. Their number doubles with each such wait, up
        to BACKOFF_MAX, and shrinks by an eighth with each answer.
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
            self.linger_backoff -= (self.linger_backoff + 7) // 8
        else:
            self.sleeps = min(2 * self.linger_backoff + BACKOFF_STEP, <uint32_t>BACKOFF_MAX)
            self.linger_backoff = self.sleeps
        return n

    cdef int serve(self, epoll_event* events, int n, int64_t now) except -1:
        """Serve the sockets for TURN_NS, starting where the last turn ran out of time."""
        cdef ClientLink link
        cdef int i, at = self.unserved if self.unserved < n else 0
        self.served_ns = self.state.now_ns = now
        self.state.wall_ns = wall_ns()
        self.state.work = 0
        self.until_ns = now + TURN_NS
        self.events = n
        self.unserved = 0
        self.turning += 1
        try:
            for i in range(n):
                link = <ClientLink>events[at].data.ptr
                if events[at].events & EPOLLOUT:
                    self.writable(link)
                if events[at].events & ~(<uint32_t>EPOLLOUT):
                    self.readable(link)
                at = at + 1 if at + 1 < n else 0
                if i + 1 < n and monotonic_ns() >= self.until_ns:
                    self.unserved = at       # epoll reports the others again, in the same order
                    break
        finally:
            self.turning -= 1
        self.finish()
        self.answered_ns = monotonic_ns()     # the turn may have waited for the disk
        if self.answered_ns - now < NOTED_NS:
            self.short_turns += 1
        elif self.watch is not None:
            self.watch.turn_ended(self.answered_ns - now)
        return 0

    cdef int writable(self, ClientLink link) except -1:
        """List a blocked link for the flush after the ready sockets were read.

        Writable sockets must not crowd out readable ones: when epoll may have more to report,
        EPOLLOUT is disabled for this socket until it was flushed.
        """
        link.sink.flags |= SINK_WRITABLE
        self.router.list_dirty(&link.sink)
        if self.events == EVENTS_PER_TURN:
            self.set_events(link, link.events & ~(<uint32_t>EPOLLOUT))
        return 0

    def flush_and_close(self) -> None:
        """Flush output and close links after work outside a turn."""
        if self.turning == 0:
            self.state.now_ns = monotonic_ns()
            self.state.wall_ns = wall_ns()
            self.finish()

    def run_rest(self) -> None:
        """Run the calls that an earlier turn left."""
        self.rest_armed = False
        self.flush_and_close()

    def give_up_overdue(self) -> None:
        """Close links whose write deadline has passed (timer callback)."""
        self.close_overdue()
        self.flush_and_close()

    def continue_work(self) -> None:
        """Continue the work that earlier turns left; normal turns run in between."""
        self.continuing = False
        self.state.now_ns = monotonic_ns()
        self.state.wall_ns = wall_ns()
        self.state.work = 0
        self.until_ns = self.state.now_ns + TURN_NS
        self.turning += 1
        try:
            self.drop_leaving()
            if not self.is_crowded():
                self.continue_deferred()
        finally:
            self.turning -= 1
        self.finish()

    cdef bint is_crowded(self) except -1:
        """Return whether much output still waits for a writable socket; then publishers wait."""
        if not self.state.crowded:
            return False
        self.state.crowded = False
        self.flush_dirty()
        if not self.state.crowded:
            return False
        self.continue_later()
        return True

    cdef int finish(self) except -1:
        cdef ClientLink link
        cdef SubList interest
        cdef int64_t until = 0
        self.turning += 1
        try:
            if self.state.lanes:
                self.commit_lanes()
            if self.is_stirred():
                self.run_calls()
            self.flush_dirty()
            while self.closing:
                if until == 0:
                    until = monotonic_ns() + CLOSE_NS
                batch = self.closing[:CLOSES_PER_LOOK]
                del self.closing[:CLOSES_PER_LOOK]
                for link in batch:
                    self.close_link(link)
                if self.is_stirred():
                    self.run_calls()
                self.flush_dirty()
                if self.closing and monotonic_ns() >= until:
                    self.continue_later()
                    break
            self.flush_until_ns = 0
            for interest in self.interests:
                interest.reclaim()
        finally:
            self.turning -= 1
        return 0

    cdef bint is_stirred(self) noexcept:
        """Return whether internal subscribers, lanes or the listener have something to process."""
        cdef SubList interest
        if self.state.calls or self.state.lanes:
            return True
        if self.listener is not None:
            for interest in self.interests:
                if interest.interest_changes:
                    return True
        return False

    cdef int commit_lanes(self) except -1:
        """Let lanes finish what they took, as far as they can; the listener does the rest."""
        cdef Lane lane
        lanes, self.state.lanes = self.state.lanes, []
        for lane in lanes:
            lane.stirred = False      # a message it sends may reach it again
            if lane.behind or not self.settles(lane):
                self.router.stir(lane)
        remove_exhausted_subs(self.router)
        return 0

    cdef bint settles(self, Lane lane) except -1:
        cdef int64_t began, span
        cdef LaneResult committed = LANE_UNCOMMITTED
        cdef CommitPace pace = None
        if lane.waits:
            if self.listener is not None:
                pace = self.listener.pace if lane.syncs else self.listener.write_pace
            if pace is None or not pace.may_wait():
                return False
        began = monotonic_ns()
        try:
            committed = lane.commit_turn()
        except Exception:
            log.exception("a commit failed")
        span = monotonic_ns() - began
        if lane.waits and committed != LANE_UNCOMMITTED and span >= NOTABLE:
            pace.record(span)
        return committed == LANE_FINISHED

    def remove_exhausted_subs(self) -> None:
        """Remove subscriptions that reached their delivery limit in compiled lanes."""
        if self.router.nspent:
            remove_exhausted_subs(self.router)

    def changed_interests(self) -> list:
        """Return the SubLists with watched interest changes; usually few of thousands."""
        cdef SubList interest
        return [interest for interest in self.interests if interest.interest_changes]

    def publish(self, SubList interest not None, str subject not None, bytes payload not None, *,
                str reply="", bytes header=b"") -> int:
        """Publish a message of the server and flush; return how many subscriptions it reached."""
        cdef int reached = self.post(interest, subject, payload, reply, header)
        self.flush_and_close()
        return reached

    cpdef int post(self, SubList interest, str subject, bytes payload, str reply="",
                   bytes header=b"", str to=None) except -1:
        """As `publish`, but the next `flush_and_close` or the end of the turn flushes.

        With `to`, subscribers of `to` receive it; they see the message under `subject`.
        """
        cdef Parcel parcel = Parcel(subject, payload, reply, header)
        cdef bytes to_raw = parcel.subject if to is None else to.encode("utf-8", "surrogateescape")
        cdef int reached = self.router.route_to(interest, NULL, &parcel.msg, to_raw, len(to_raw))
        remove_exhausted_subs(self.router)
        return reached

    def pass_on(self, SubList interest not None, str subject not None, bytes payload not None,
                str reply, bytes header, str to not None, ClientLink source) -> int:
        """As `post`, for a message that `source` published in another account.

        It is not imported again: subscribers in a third account do not receive it.
        """
        cdef Parcel parcel = Parcel(subject, payload, reply, header)
        cdef bytes to_raw = to.encode("utf-8", "surrogateescape")
        cdef int reached
        self.router.importing = True
        reached = self.router.route_to(interest, NULL if source is None else &source.sink,
                                       &parcel.msg, to_raw, len(to_raw))
        self.router.importing = False
        remove_exhausted_subs(self.router)
        return reached

    def pass_on_traced(self, SubList interest not None, str subject not None,
                       bytes payload not None, str reply, bytes header, ClientLink source,
                       trace) -> int:
        """As `pass_on`, with a trace."""
        cdef Parcel parcel = Parcel(subject, payload, reply, header)
        cdef int reached
        self.router.importing = True
        try:
            reached = self.router.route_traced(
                interest, NULL if source is None else &source.sink, &parcel.msg, trace)
        finally:
            self.router.importing = False
        remove_exhausted_subs(self.router)
        return reached

    # -- closing

    cdef int close_link(self, ClientLink link) except -1:
        """Close the socket and remove the link, after sending what the socket accepts at once."""
        cdef int status
        if link.closed:
            return 0
        if link.codec is None:
            status = self.drain(link, &link.sink.out)
        else:
            status = self.flush(link)
        if status == SEND_MORE:
            self.closing.append(link)
            return 0
        if link.codec is not None:
            try:
                farewell = link.codec.farewell(link.close_reason)
            except Exception:     # a failing codec must not keep others from closing
                log.exception("closing a transport failed")
                farewell = b""
            out_append(&self.router.pool, &link.encoded, farewell, len(farewell))
            self.drain(link, &link.encoded)
        self.state.ran_python = True
        if self.state.pressed == &link.sink:
            self.state.pressed = NULL
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
            link.handler.closed(link.close_reason)    # it still sees the subscriptions
        except Exception:
            log.exception("closing a session failed")
        if link.sids.count > DROPS_AT_ONCE:
            self.leaving.append(link)
            self.continue_later()
        else:
            link.drop_subscriptions()
        # The list of dirty sinks may still point to the link's sink, so keep the link until then.
        if link.sink.flags & SINK_DIRTY:
            self.unlisted.append(link)
        del self.links[link.cid]
        return 0

    cdef int drop_leaving(self) except -1:
        """Drop subscriptions of closed links in slices; closed links receive no messages."""
        cdef ClientLink link
        if self.leaving:
            link = self.leaving[0]
            if link.drop_some(DROPS_AT_ONCE):
                del self.leaving[0]
        if self.leaving:
            self.continue_later()
        return 0
