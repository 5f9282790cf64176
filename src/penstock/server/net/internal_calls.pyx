"""InternalCalls: runs the internal subscribers (callbacks of this process) within a time budget.

The router collects the calls of a turn. They run after the data path, in the order in which their
messages arrived; messages that they publish may cause further calls. A turn spends at most
CALLS_BUDGET_NS on them. The remaining calls stay first in the queue and run in a later turn. The
clients whose messages wait there are not read until the queue is empty, so the queue is bounded by
what one turn reads.

The IoLoop calls `run_calls`. After LATE_NS `is_late` returns True: subscribers that have a queue of
their own should use it, so that one of them does not spend the whole budget.
"""

from penstock.server.net.posix cimport EPOLLIN, monotonic_ns

from penstock.server.server_log import log

cdef enum:
    CALL_ROUNDS_MAX = 64           # rounds of internal subscribers calling each other in a turn

cdef int64_t NOTED_NS = 1_000_000              # calls at least this long are reported
cdef int64_t LATE_NS = 2_000_000               # time for calls until requests are queued
cdef int64_t CALLS_BUDGET_NS = 4_000_000       # time for calls until the rest waits for a turn


cdef class InternalCalls(SocketWriter):
    cdef int run_calls(self) except -1:
        """Call internal subscribers, and those they publish to, until the budget is spent."""
        cdef int rounds = 0
        cdef int at
        cdef list calls
        cdef int64_t until = monotonic_ns() + CALLS_BUDGET_NS
        self.state.ran_python = True
        self.late_ns = until - CALLS_BUDGET_NS + LATE_NS
        while rounds < CALL_ROUNDS_MAX:
            rounds += 1
            calls, self.state.calls = self.state.calls, []
            at = self.run_some(calls, until)
            if at < len(calls):
                self.leave(calls[at:])
            if self.listener is not None:
                try:
                    self.listener.calls_ended()
                except Exception:
                    log.exception("what follows a turn failed")
            if not self.state.calls and not self.state.lanes:
                if self.backlogged:
                    self.resume_backlogged()
                return 0
            if monotonic_ns() >= until:
                break
        return self.arm_rest()

    cdef int run_some(self, list calls, int64_t until) except -1:
        """Run calls until the time is up; return how many ran."""
        cdef int at = 0
        cdef int64_t began = monotonic_ns(), now, longest = 0
        slowest = None
        for call, subject, reply, header, payload, source in calls:
            at += 1
            try:
                call(subject, reply, header, payload, source)
            except Exception:
                log.exception("internal subscriber of %s failed", subject)
            now = monotonic_ns()
            if now - began > longest:
                longest = now - began
                slowest = subject
            began = now
            if now >= until:
                break
        if longest >= NOTED_NS and self.watch is not None:
            self.watch.note(longest, f"message on {slowest}")
        return at

    def is_late(self) -> bool:
        """Return whether this turn has spent LATE_NS on internal subscribers."""
        return monotonic_ns() >= self.late_ns

    cdef int leave(self, list calls) except -1:
        """Put calls back, and stop reading the clients that sent their messages."""
        cdef ClientLink link
        self.state.calls = calls + self.state.calls
        for call in calls:
            link = call[5]
            if link is not None and not link.backlogged and not link.closed:
                link.backlogged = True
                self.backlogged.append(link)
                self.listen(link)
        return 0

    cdef int arm_rest(self) except -1:
        if not self.rest_armed:
            self.rest_armed = True
            self.arm(0, self.on_rest)
        return 0

    cdef int resume_backlogged(self) except -1:
        cdef ClientLink link
        links, self.backlogged = self.backlogged, []
        for link in links:
            link.backlogged = False
            if not link.closed:
                self.listen(link)
        return 0

    def set_listener(self, TurnListener listener not None) -> None:
        """Set the listener that runs after a turn's internal subscribers, before the flush."""
        self.listener = listener

    def set_watch(self, watch) -> None:
        """Set the LoopWatch; it records operations that took NOTED_NS or longer."""
        self.watch = watch

    def pause(self, ClientLink link not None) -> None:
        """Stop reading the link until `unpause`, because many of its requests wait."""
        link.paused = True
        if not link.closed:
            self.listen(link)

    def unpause(self, ClientLink link not None) -> None:
        link.paused = False
        if not link.closed:
            self.listen(link)

    cdef int listen(self, ClientLink link) except -1:
        """Read from the link, unless it is held, stalled, backlogged or paused.

        A link with unprocessed received bytes is continued in a later turn instead.
        """
        if not (link.held or link.stalled or link.backlogged or link.paused):
            if not link.deferred:
                return self.set_events(link, link.events | EPOLLIN)
            if not link.awaits_turn:
                link.awaits_turn = True
                self.deferred.append(link)
                self.continue_later()
        return self.set_events(link, link.events & ~(<uint32_t>EPOLLIN))
