"""The sender: from outboxes to sockets.

Sends are direct and non-blocking. What a socket does not take stays in its outbox until epoll
says that it takes more; from the first refusal on, what waits then must have left by the write
deadline, and never more than max_pending may wait. A link with a codec has its outbox encoded
piece by piece, only as fast as the socket takes the result.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EAGAIN, EINTR, errno
from libc.string cimport memset

import os

from penstock.broker.outbox cimport Chunk, chunk_bytes, out_append, out_consume
from penstock.broker.router cimport (
    SINK_BLOCKED, SINK_CLOSING, SINK_DIRTY, SINK_SLOW, SINK_URGENT, Sink,
)
from penstock.server.posix cimport (
    EPOLL_CTL_MOD, EPOLLOUT, MSG_DONTWAIT, MSG_NOSIGNAL, epoll_ctl, epoll_event, iovec,
    monotonic_ns, msghdr, send, sendmsg,
)

from penstock.server.codecs.contract import CodecEnd

cdef enum:
    PIECES_PER_SEND = 32
    ENCODE_BYTES = 262144          # handed to a codec at a time

cdef int64_t TICK_NS = 250_000_000             # how often write deadlines are looked at


cdef class Sender:
    """The writing half of a plane, which sets the attributes."""

    cdef int flush_dirty(self) except -1:
        cdef Sink* sink = self.router.dirty_first
        cdef Sink* following
        self.router.dirty_first = self.router.dirty_last = NULL
        while sink != NULL:
            following = sink.next_dirty
            sink.flags &= ~(<uint32_t>(SINK_DIRTY | SINK_URGENT))
            # A full socket is not asked again before epoll says that it takes more.
            if not sink.flags & SINK_BLOCKED or sink.flags & SINK_SLOW:
                self.flush(<Link>sink.owner)
            sink = following
        self.router.urgent = NULL
        return 0

    cdef int flush_urgent(self) except -1:
        cdef Sink* sink = self.router.urgent
        self.router.urgent = NULL
        while sink != NULL:
            sink.flags &= ~(<uint32_t>SINK_URGENT)
            self.flush(<Link>sink.owner)
            sink = sink.next_urgent
        return 0

    cdef int flush(self, Link link) except -1:
        """Sends what the socket takes. A link over its bound is cut off here."""
        if link.closed:
            return 0
        if link.sink.flags & SINK_SLOW:
            self.slow_consumers += 1
            link.close("Slow Consumer (Pending Bytes)")
            link.sink.flags &= ~(<uint32_t>SINK_SLOW)
            return 0
        if link.codec is None:
            return self.drain(link, &link.sink.out)
        try:
            while self.drain(link, &link.encoded) == 0 and self.encode_pending(link):
                pass
        except CodecEnd as end:
            link.handler.codec_ended(end)
        return 0

    cdef int encode_pending(self, Link link) except -1:
        """Hands a large piece of the outbox to the codec; answers whether it made bytes of it."""
        cdef Chunk* chunk = link.sink.out.head
        cdef bytes encoded = link.codec.outgoing()
        cdef list pieces = []
        cdef size_t n = 0
        if link.codec.established:
            while chunk != NULL and n < ENCODE_BYTES:
                pieces.append(PyBytes_FromStringAndSize(
                    chunk_bytes(chunk) + chunk.start, chunk.end - chunk.start))
                n += chunk.end - chunk.start
                chunk = chunk.next
        if n:
            out_consume(&self.router.pool, &link.sink.out, n)
            encoded += link.codec.encode(b"".join(pieces))
        out_append(&self.router.pool, &link.encoded, encoded, len(encoded))
        return len(encoded) > 0

    def send_raw(self, Link link not None, bytes data not None) -> None:
        """Transport bytes, past the codec: what is said before it takes over."""
        out_append(&self.router.pool, &link.encoded, data, len(data))
        self.router.mark_dirty(&link.sink)

    cdef int drain(self, Link link, Outbox* out) except -1:
        """0: all sent; 1: the socket is full; 2: it is broken."""
        cdef iovec pieces[PIECES_PER_SEND]
        cdef msghdr message
        cdef Chunk* chunk
        cdef size_t count, asked
        cdef ssize_t n
        while out.pending:
            chunk = out.head
            if chunk.next == NULL:
                asked = chunk.end - chunk.start
                n = send(link.fd, chunk_bytes(chunk) + chunk.start, asked,
                         MSG_NOSIGNAL | MSG_DONTWAIT)
            else:
                count = asked = 0
                while chunk != NULL and count < PIECES_PER_SEND:
                    pieces[count].iov_base = chunk_bytes(chunk) + chunk.start
                    pieces[count].iov_len = chunk.end - chunk.start
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
                    return 1
                link.close("Write Error")
                return 2
            out_consume(&self.router.pool, out, n)
            link.sent += n
            link.sink.progress_ns = self.router.now_ns
            link.sink.progress_left = link.sink.out.pending
            if <size_t>n < asked:
                self.note_blocked(link)
                return 1
        if link.sink.flags & SINK_BLOCKED:
            link.sink.flags &= ~(<uint32_t>SINK_BLOCKED)
            self.set_events(link, link.events & ~(<uint32_t>EPOLLOUT))
        return 0

    cdef int note_blocked(self, Link link) except -1:
        """The socket is full. From its first refusal on, what waits then has a deadline."""
        cdef int64_t pending = link.sink.out.pending + link.encoded.pending
        if not link.sink.flags & SINK_BLOCKED:
            link.sink.flags |= SINK_BLOCKED
            self.set_events(link, link.events | EPOLLOUT)
            link.blocked_since_ns = self.router.now_ns
            link.blocked_goal = link.sent + pending
            self.await_deadline(link)
        elif link.sent >= link.blocked_goal:
            link.blocked_since_ns = self.router.now_ns
            link.blocked_goal = link.sent + pending
        if pending > link.sink.max_pending and not link.sink.flags & SINK_CLOSING:
            self.slow_consumers += 1
            link.close("Slow Consumer (Pending Bytes)")
        return 0

    cdef int set_events(self, Link link, uint32_t events) except -1:
        cdef epoll_event event
        if link.closed or events == link.events:
            return 0
        event.events = link.events = events
        event.data.ptr = <void*>link
        if epoll_ctl(self.epfd, EPOLL_CTL_MOD, link.fd, &event) < 0:
            raise OSError(errno, os.strerror(errno))
        return 0

    # -- deadlines

    cdef int await_deadline(self, Link link) except -1:
        if link.awaits_deadline:
            return 0
        link.awaits_deadline = True
        if not self.blocked:
            self.arm(min(TICK_NS, self.write_deadline_ns) / 1e9, self.on_deadline)
        self.blocked.append(link)
        return 0

    cdef int close_overdue(self) except -1:
        """Links whose write deadline has passed are closed; the others are waited for again."""
        cdef Link link
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
