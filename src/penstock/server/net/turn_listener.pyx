"""What the IoLoop needs of the layer above it at the end of a turn: a listener, and a pace.

The loop asks `CommitPace` whether a turn may wait for a commit, records in it how long commits
took, and calls `TurnListener.calls_ended` after the internal subscribers of a turn. JetStream
derives its runtime from `TurnListener`; without one, lanes commit nothing that waits for a disk.
"""

from libc.stdint cimport int64_t

cdef int64_t QUICK = 1_000_000
cdef int64_t SMOOTH = 8

QUICK_NS = QUICK      # a turn waits for commits only while they take at most this on average
NOTABLE_NS = NOTABLE
SMOOTHING = SMOOTH    # commits the average follows; one above SMOOTHING * QUICK_NS counts for all


cdef class CommitPace:
    """Decides whether the event loop waits for a commit itself: a thread costs more than a quick
    sync, but while one is slow or busy, other clients are served."""

    @property
    def is_quick(self) -> bool:
        """Whether the event loop may wait for a commit itself."""
        return self.may_wait()

    def took(self, int64_t span_ns) -> None:
        """Record the duration of a commit."""
        self.record(span_ns)

    cdef bint may_wait(self) noexcept:
        return self.usual_ns <= QUICK and not self.running

    cdef void record(self, int64_t span_ns) noexcept:
        if span_ns > SMOOTH * QUICK:
            self.usual_ns = span_ns // SMOOTH
        else:
            self.usual_ns += (span_ns - self.usual_ns) // SMOOTH


cdef class TurnListener:
    """The object that the IoLoop calls in each turn that ran internal subscribers or lanes.

    `pace` is that of commits that sync, `write_pace` that of commits that only write: a disk that
    is slow or busy with syncs does not delay them.
    """

    def __init__(self, CommitPace pace not None, CommitPace write_pace not None) -> None:
        self.pace = pace
        self.write_pace = write_pace

    cpdef object calls_ended(self):
        """The internal subscribers of a turn have run; output is flushed after this returns."""
