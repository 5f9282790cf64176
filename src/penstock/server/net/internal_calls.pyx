"""Internal subscribers: code of this process that receives messages, within a time budget.

The router collects the calls of a turn; they run after the data path, in the order in which their
messages came, and what they publish may call others. A turn spends at most CALLS_BUDGET_NS on
them. What is left stays first in the queue and runs in a later turn; the clients whose messages
wait there are not read until it is empty, so the queue is bounded by what one turn reads.

The plane calls `run_calls`. After LATE_NS `is_late` asks subscribers that have a queue of their own
to use it, so that one of them does not take the time of all.
"""

from penstock.server.net.posix cimport EPOLLIN, monotonic_ns

from penstock.server.server_log import log

cdef enum:
    CALL_ROUNDS_MAX = 64           # of internal subscribers answering each other within a turn

cdef int64_t NOTED_NS = 1_000_000              # a call from this length on is reported
cdef int64_t LATE_NS = 2_000_000               # of calls, then requests are queued
cdef int64_t CALLS_BUDGET_NS = 4_000_000       # of calls, then the rest waits for another turn


cdef class InternalCalls(SocketWriter):
    cdef int run_calls(self) except -1:
        """Call internal subscribers, and those they publish to, until the budget is spent."""
        cdef int rounds = 0
        cdef int at
        cdef list calls
        cdef int64_t until = monotonic_ns() + CALLS_BUDGET_NS
        self.router.asked = True
        self.late_ns = until - CALLS_BUDGET_NS + LATE_NS
        while rounds < CALL_ROUNDS_MAX:
            rounds += 1
            calls, self.router.calls = self.router.calls, []
            at = self.run_some(calls, until)
            if at < len(calls):
                self.leave(calls[at:])
            if self.epilogue is not None:
                try:
                    self.epilogue()
                except Exception:
                    log.exception("what follows a turn failed")
            if not self.router.calls and not self.router.lanes:
                if self.backlogged:
                    self.resume_backlogged()
                return 0
            if monotonic_ns() >= until:
                break
        return self.arm_rest()

    cdef int run_some(self, list calls, int64_t until) except -1:
        """Run calls until the time is up; return how many."""
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
        """Return whether this turn has spent enough time on internal subscribers."""
        return monotonic_ns() >= self.late_ns

    cdef int leave(self, list calls) except -1:
        """Put calls back, and stop reading from the clients whose messages they are."""
        cdef ClientLink link
        self.router.calls = calls + self.router.calls
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

    def set_epilogue(self, epilogue) -> None:
        """Called once the internal subscribers of a turn have run, before anything is flushed."""
        self.epilogue = epilogue

    def set_watch(self, watch) -> None:
        """Called with what held the loop for NOTED_NS or longer."""
        self.watch = watch

    def pause(self, ClientLink link not None) -> None:
        """Read nothing from the link until `unpause`: much of what it asked for waits."""
        link.paused = True
        if not link.closed:
            self.listen(link)

    def unpause(self, ClientLink link not None) -> None:
        link.paused = False
        if not link.closed:
            self.listen(link)

    cdef int listen(self, ClientLink link) except -1:
        """Read from the link, unless there is a reason not to.

        A link with received bytes that were not obeyed is continued instead, in a later turn.
        """
        if not (link.held or link.stalled or link.backlogged or link.paused):
            if not link.deferred:
                return self.set_events(link, link.events | EPOLLIN)
            if not link.awaits_turn:
                link.awaits_turn = True
                self.deferred.append(link)
                self.continue_later()
        return self.set_events(link, link.events & ~(<uint32_t>EPOLLIN))
