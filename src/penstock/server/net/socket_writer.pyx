"""SocketWriter: sends outboxes to sockets.

Sends are direct and non-blocking. Bytes that a socket does not accept stay in its outbox until
epoll reports it writable. The bytes pending when a socket first blocks must leave by the write
deadline, and at most max_pending bytes may wait. For a link with a codec, the writer encodes the
outbox piece by piece, only as fast as the socket accepts the result.

Flushing is sliced: one link sends at most DRAIN_BYTES before the next one, and after FLUSH_NS the
remaining dirty links wait for the next turn, in order. Links with less than HEAVY_BYTES to send
come first, so a short reply does not wait until a thousand clients have received a large message.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memset

import os

from penstock.broker.outbox cimport Chunk, chunk_bytes, out_append, out_consume
from penstock.broker.router cimport (
    SINK_BLOCKED, SINK_CLOSING, SINK_DIRTY, SINK_SLOW, SINK_URGENT, SINK_WRITABLE, Sink,
)
from penstock.server.net.posix cimport (
    EPOLL_CTL_MOD, EPOLLOUT, MSG_DONTWAIT, MSG_NOSIGNAL, epoll_ctl, epoll_event, iovec,
    monotonic_ns, msghdr, send, sendmsg,
)

from penstock.server.net.codecs.contract import CodecEnd

cdef enum:
    PIECES_PER_SEND = 32
    ENCODE_BYTES = 65536           # passed to a codec at a time
    DRAIN_BYTES = 1048576          # sent to one link before other links get their turn
    HEAVY_BYTES = 65536            # a link with at least this pending is flushed after lighter ones
    SINKS_PER_LOOK = 32            # links flushed between two clock readings
    BYTES_PER_LOOK = 524288        # bytes sent between two clock readings

cdef int64_t TICK_NS = 250_000_000             # interval of the write deadline check
cdef int64_t FLUSH_NS = 3_000_000              # time for sends in one turn; the rest follows


cdef class SocketWriter:
    """The writing half of an IoLoop, which sets the attributes."""

    cdef int continue_later(self) except -1:
        """Schedule `continue_work` to run soon, after other clients were served."""
        if not self.continuing:
            self.continuing = True
            self.arm(0, self.on_continue)
        return 0

    cdef int flush_dirty(self) except -1:
        """Flush dirty links for FLUSH_NS per turn, the light ones first; the rest follows later.

        One heavy link is flushed even if light ones took all the time, so they cannot starve it.
        """
        cdef Sink* sink = self.state.dirty_first
        cdef uint32_t flushed = 0
        cdef uint64_t sent = self.sent_bytes
        cdef int64_t now
        if self.state.urgent != NULL:
            self.forget_urgent()
        if (sink != NULL and sink == self.state.dirty_last and self.heavy_first == NULL
                and sink.out.pending < HEAVY_BYTES):
            # Most turns have one receiver: no other receiver waits for this flush.
            self.state.dirty_first = self.state.dirty_last = NULL
            self.flush_listed(sink)
        while self.state.dirty_first != NULL or self.heavy_first != NULL:
            sink = self.take_dirty()
            if sink == NULL:
                sink = self.take_heavy()
                if sink == NULL:
                    break
            self.flush_listed(sink)
            flushed += 1
            if flushed >= SINKS_PER_LOOK or self.sent_bytes - sent >= BYTES_PER_LOOK:
                flushed = 0
                sent = self.sent_bytes
                now = monotonic_ns()
                if self.flush_until_ns == 0:
                    self.flush_until_ns = now + FLUSH_NS
                elif now >= self.flush_until_ns:
                    sink = self.take_heavy()
                    if sink != NULL:
                        self.flush_listed(sink)
                    break
        if self.state.urgent != NULL:
            self.forget_urgent()
        if self.state.dirty_first != NULL or self.heavy_first != NULL:
            self.continue_later()
        if self.unlisted:
            self.forget_unlisted()
        return 0

    cdef Sink* take_dirty(self) noexcept:
        """Take the next light sink off the list; move heavy sinks before it to the heavy list."""
        cdef Sink* sink = self.state.dirty_first
        cdef Sink* following
        while sink != NULL:
            following = sink.next_dirty
            if sink.out.pending < HEAVY_BYTES or sink.flags & SINK_SLOW:
                break
            sink.next_dirty = NULL
            if self.heavy_last == NULL:
                self.heavy_first = sink
            else:
                self.heavy_last.next_dirty = sink
            self.heavy_last = sink
            sink = following
        if sink == NULL:
            self.state.dirty_first = self.state.dirty_last = NULL
        else:
            self.state.dirty_first = following
            if following == NULL:
                self.state.dirty_last = NULL
        return sink

    cdef Sink* take_heavy(self) noexcept:
        cdef Sink* sink = self.heavy_first
        if sink != NULL:
            self.heavy_first = sink.next_dirty
            if self.heavy_first == NULL:
                self.heavy_last = NULL
        return sink

    cdef int flush_listed(self, Sink* sink) except -1:
        """Flush a link that was taken off its list, unless its socket is known to be full."""
        sink.flags &= ~(<uint32_t>SINK_DIRTY)
        if not sink.flags & SINK_BLOCKED or sink.flags & (SINK_SLOW | SINK_WRITABLE):
            self.flush(<ClientLink>sink.owner)
        return 0

    cdef int forget_unlisted(self) except -1:
        """Release closed links that no list of dirty sinks contains any more."""
        cdef ClientLink link
        self.unlisted[:] = [link for link in self.unlisted if link.sink.flags & SINK_DIRTY]
        return 0

    cdef void forget_urgent(self) noexcept:
        """Empty the list of urgent links: each is dirty as well, and is flushed as such.

        A sink has SINK_URGENT exactly while it is in that list; listing it twice would form a ring.
        """
        cdef Sink* sink = self.state.urgent
        self.state.urgent = NULL
        while sink != NULL:
            sink.flags &= ~(<uint32_t>SINK_URGENT)
            sink = sink.next_urgent

    cdef int flush_urgent(self) except -1:
        """Flush urgent links while the turn has time; the others stay in the list of dirty ones."""
        cdef Sink* sink = self.state.urgent
        cdef Sink* following
        cdef uint64_t sent = self.sent_bytes
        cdef bint late = False
        self.state.urgent = NULL
        while sink != NULL:
            following = sink.next_urgent     # flushing may list the sink again
            sink.flags &= ~(<uint32_t>SINK_URGENT)
            if not late:
                self.flush(<ClientLink>sink.owner)
            if self.sent_bytes - sent >= BYTES_PER_LOOK:
                sent = self.sent_bytes
                late = monotonic_ns() >= self.until_ns
            sink = following
        return 0

    cdef int flush(self, ClientLink link) except -1:
        """Send what the socket takes, up to DRAIN_BYTES. Close a link that exceeds max_pending.

        Returns SEND_MORE if the socket may take more; the link is then flushed again.
        """
        cdef int rounds = 0
        link.sink.flags &= ~(<uint32_t>SINK_WRITABLE)
        if link.closed:
            return 0
        if link.sink.flags & SINK_SLOW:
            self.slow_consumers += 1
            link.close("Slow Consumer (Pending Bytes)")
            link.sink.flags &= ~(<uint32_t>SINK_SLOW)
            return 0
        if link.codec is None:
            if self.drain(link, &link.sink.out) == SEND_MORE:
                self.router.mark_dirty(&link.sink)
                return SEND_MORE
            return 0
        try:
            while self.drain(link, &link.encoded) == SENT_ALL and self.encode_pending(link):
                rounds += 1
                if rounds == DRAIN_BYTES // ENCODE_BYTES:
                    self.router.mark_dirty(&link.sink)
                    return SEND_MORE
        except CodecEnd as end:
            link.handler.codec_ended(end)
        return 0

    cdef int encode_pending(self, ClientLink link) except -1:
        """Encode at most ENCODE_BYTES of the outbox; return whether that produced bytes."""
        cdef Chunk* chunk = link.sink.out.head
        cdef bytes encoded = link.codec.outgoing()
        cdef list pieces = []
        cdef size_t taken, n = 0
        if link.codec.established:
            while chunk != NULL and n < ENCODE_BYTES:
                taken = min(<size_t>(chunk.end - chunk.start), ENCODE_BYTES - n)
                pieces.append(PyBytes_FromStringAndSize(chunk_bytes(chunk) + chunk.start, taken))
                n += taken
                chunk = chunk.next
        if n:
            out_consume(&self.router.pool, &link.sink.out, n)
            encoded += link.codec.encode(b"".join(pieces))
        out_append(&self.router.pool, &link.encoded, encoded, len(encoded))
        return len(encoded) > 0

    def send_raw(self, ClientLink link not None, bytes data not None) -> None:
        """Queue transport bytes that bypass the codec, such as INFO before the TLS handshake."""
        out_append(&self.router.pool, &link.encoded, data, len(data))
        self.router.mark_dirty(&link.sink)

    cdef int drain(self, ClientLink link, Outbox* out) except -1:
        """Send at most about DRAIN_BYTES; return a `Drained` value."""
        cdef iovec pieces[PIECES_PER_SEND]
        cdef msghdr message
        cdef Chunk* chunk
        cdef size_t count, asked, room = DRAIN_BYTES
        cdef ssize_t n
        while out.pending:
            if room == 0:
                return SEND_MORE
            chunk = out.head
            if chunk.next == NULL:
                asked = min(<size_t>(chunk.end - chunk.start), room)
                n = send(link.fd, chunk_bytes(chunk) + chunk.start, asked,
                         MSG_NOSIGNAL | MSG_DONTWAIT)
            else:
                count = asked = 0
                while chunk != NULL and count < PIECES_PER_SEND and asked < room:
                    pieces[count].iov_base = chunk_bytes(chunk) + chunk.start
                    pieces[count].iov_len = min(<size_t>(chunk.end - chunk.start), room - asked)
                    asked += pieces[count].iov_len
                    count += 1
                    chunk = chunk.next
                memset(&message, 0, sizeof(msghdr))
                message.msg_iov = pieces
                message.msg_iovlen = count
                n = sendmsg(link.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT)
            if n < 0:
                if errno == EINTR:
                    continue
                if errno == EAGAIN:
                    self.note_blocked(link)
                    return SOCKET_FULL
                link.close("Write Error")
                return SOCKET_BROKEN
            out_consume(&self.router.pool, out, n)
            room -= n
            link.sent += n
            self.sent_bytes += n
            link.sink.progress_ns = self.state.now_ns
            link.sink.progress_left = link.sink.out.pending
            if <size_t>n < asked:
                self.note_blocked(link)
                return SOCKET_FULL
        if link.sink.flags & SINK_BLOCKED:
            link.sink.flags &= ~(<uint32_t>SINK_BLOCKED)
            self.set_events(link, link.events & ~(<uint32_t>EPOLLOUT))
        return SENT_ALL

    cdef int note_blocked(self, ClientLink link) except -1:
        """Record that the socket is full. The first time, start the deadline of what is pending."""
        cdef int64_t pending = link.sink.out.pending + link.encoded.pending
        self.set_events(link, link.events | EPOLLOUT)
        if not link.sink.flags & SINK_BLOCKED:
            link.sink.flags |= SINK_BLOCKED
            link.blocked_since_ns = self.state.now_ns
            link.blocked_goal = link.sent + pending
            self.await_deadline(link)
        elif link.sent >= link.blocked_goal:
            link.blocked_since_ns = self.state.now_ns
            link.blocked_goal = link.sent + pending
        if pending > link.sink.max_pending and not link.sink.flags & SINK_CLOSING:
            self.slow_consumers += 1
            link.close("Slow Consumer (Pending Bytes)")
        return 0

    cdef int set_events(self, ClientLink link, uint32_t events) except -1:
        cdef epoll_event event
        if link.closed or events == link.events:
            return 0
        event.events = link.events = events
        event.data.ptr = <void*>link
        if epoll_ctl(self.epfd, EPOLL_CTL_MOD, link.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    # -- deadlines

    cdef int await_deadline(self, ClientLink link) except -1:
        if link.awaits_deadline:
            return 0
        link.awaits_deadline = True
        if not self.blocked:
            self.arm(min(TICK_NS, self.write_deadline_ns) / 1e9, self.on_deadline)
        self.blocked.append(link)
        return 0

    cdef int close_overdue(self) except -1:
        """Close links whose write deadline has passed; keep watching the others."""
        cdef ClientLink link
        cdef int64_t now = monotonic_ns()
        waiting, self.blocked = self.blocked, []
        for link in waiting:
            link.awaits_deadline = False
            if link.closed or not link.sink.flags & SINK_BLOCKED:
                continue
            if now - link.blocked_since_ns >= self.write_deadline_ns:
                self.slow_consumers += 1
                link.close("Slow Consumer (Write Deadline)")
            else:
                self.await_deadline(link)
        return 0
