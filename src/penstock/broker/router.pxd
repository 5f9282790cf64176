"""C interface of the router, which encodes messages into the outboxes of subscribers."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.outbox cimport ChunkPool, Outbox, SharedBytes
from penstock.subjects.trie_nodes cimport Sub
from penstock.subjects.trie cimport SubList

cdef enum:
    LANES_PER_MESSAGE = 4
    PROGRESS_NS = 100_000_000     # a socket that accepted no bytes for this long is stuck

cdef enum SinkFlag:
    SINK_HEADERS = 1       # understands HMSG
    SINK_NO_ECHO = 2       # does not want its own messages
    SINK_CLOSING = 4       # accepts nothing more
    SINK_SLOW = 8          # more than max_pending bytes wait: to be disconnected
    SINK_DIRTY = 16        # on the list of sinks to flush
    SINK_URGENT = 32       # has enough pending bytes to flush before the turn ends
    SINK_BLOCKED = 64      # the socket accepts no bytes now
    SINK_NOTES_REPLIES = 128  # may publish to reply subjects it received, so they are recorded
    SINK_TRACED = 256      # deliveries are logged
    SINK_WRITABLE = 512    # epoll has reported the blocked socket as writable

cdef enum LaneResult:         # what a lane did at the end of a turn
    LANE_BROKEN = -1
    LANE_UNCOMMITTED = 0        # nothing: its listener has to commit
    COMMITTED = 1          # committed what it took; its listener must be notified
    LANE_FINISHED = 2      # committed what it took; nothing else to do

cdef struct Sink:
    Outbox out
    int64_t max_pending
    int64_t urgent_at      # pending bytes from which a flush before the end of the turn pays off
    int64_t pressure_at    # pending bytes from which publishers are held back
    uint64_t out_msgs
    uint64_t out_bytes
    uint32_t flags
    int64_t progress_ns    # when the socket last accepted bytes
    int64_t progress_left  # bytes that were pending then
    Sink* next_dirty
    Sink* next_urgent
    void* owner            # the connection, for calls that need Python

cdef struct Message:
    const char* subject
    const char* reply
    const char* sizes      # "[reply ]sizes\r\n", the end of the delivery line
    const char* body       # header block, payload, and the closing CRLF
    size_t subject_len
    size_t reply_len
    size_t sizes_len
    size_t size            # header block and payload
    size_t hdr_len         # 0: no header block

cdef class Parcel:
    """A message created from Python values; `msg` is valid as long as the parcel exists."""
    cdef Message msg
    cdef bytes subject
    cdef bytes reply
    cdef bytes sizes
    cdef bytes body

cdef class Owner:
    """What the router may request from the connection that owns a sink."""
    cdef bint delivery_denied(self, Sub* sub, Message* msg)
    cdef void note_reply(self, Message* msg)
    cdef void trace_delivery(self, Sub* sub, Message* msg)

cdef class LaneListener:
    """Owns a lane: takes the messages that it leaves, and hears of those that it took."""
    cpdef object received(self, str subject, str reply, bytes header, bytes payload, object source)
    cpdef object lane_changed(self)

cdef class Lane:
    """An internal subscriber that may take a message while it is routed, without Python.

    A message that it does not take goes to its listener, after the turn's data path. Invariant:
    until that has run, the router offers it nothing more, so that messages do not overtake each
    other.
    The router offers a message after all other receivers have it, so the lane may route messages
    itself.
    """
    cdef readonly LaneListener listener
    cdef bint behind          # some of this turn's messages wait for the listener
    cdef bint stirred         # on the turn's list of lanes that took or passed on messages
    cdef bint quiet           # its listener need not be notified at once of what it took
    cdef bint waits           # its commit may wait for the disk
    cdef bint syncs           # its commit syncs; otherwise it only writes, to the page cache
    cdef bint take(self, Message* msg) noexcept
    cdef LaneResult commit_turn(self) except LANE_BROKEN

@cython.final
cdef class TurnState:
    """What one turn of an IoLoop has done so far, and what it must still do before it ends.

    The IoLoop owns it: it sets the times, and empties the lists. The router, links and lanes add to
    them. Until an IoLoop serves a router, the router has a state of its own.
    """
    cdef int64_t now_ns       # monotonic time when the turn began
    cdef int64_t wall_ns      # the same as wall time, since 1970
    cdef uint64_t work        # done since the clock was last read; about 50 ns per unit
    cdef uint64_t written     # payload bytes of all deliveries, of all turns
    cdef Sink* dirty_first    # sinks to flush
    cdef Sink* dirty_last
    cdef Sink* urgent         # those of them to flush before the turn ends
    cdef Sink* pressed        # a receiver of the last messages that is close to its limit
    cdef bint crowded         # many bytes wait for a receiver that is not blocked: flush soon
    cdef bint ran_python      # Python code ran, and may have scheduled work on the event loop
    cdef list lanes           # that took or passed on messages
    cdef list calls           # (callable, subject, reply, header, payload, source) to call

@cython.final
cdef class Router:
    cdef ChunkPool pool
    cdef TurnState turn       # the turn whose messages are routed
    cdef uint32_t fanout      # receivers of the message that is being routed
    cdef SharedBytes* shared  # its body, if receivers share it
    cdef Sub** spent          # subscriptions that have received their last message
    cdef uint32_t nspent
    cdef uint32_t spent_cap
    cdef uint64_t rng
    cdef Sub* offered[LANES_PER_MESSAGE]   # lanes of the message that is being routed
    cdef uint32_t noffered
    cdef const char* to       # the subject that is matched for the message being routed
    cdef size_t to_len
    cdef bint importing       # the message was imported from another account: skip shadows

    cdef void stir(self, Lane lane) noexcept
    cdef void offer_all(self, Sink* source, Message* msg) noexcept
    cdef void offer(self, Sub* sub, Sink* source, Message* msg) noexcept
    cdef void pass_by(self, Sub* sub, Sink* source, Message* msg) noexcept
    cdef uint32_t route(self, SubList interest, Sink* source, Message* msg) noexcept
    cdef uint32_t route_to(self, SubList interest, Sink* source, Message* msg,
                           const char* to, size_t to_len) noexcept
    cdef uint32_t route_traced(self, SubList interest, Sink* source, Message* msg,
                               object trace) except? 4294967295
    cdef bint deliver_traced(self, Sub* sub, Sink* source, Message* msg, object trace) except -1
    cdef bint call_traced(self, Sub* sub, Sink* source, Message* msg, object trace) except -1
    cdef bint deliver(self, Sub* sub, Sink* source, Message* msg) noexcept
    cdef void write(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil
    cdef void write_in_pieces(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil
    cdef void write_shared(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil
    cdef void write_stripped(self, Sink* sink, Sub* sub, Message* msg) noexcept nogil
    cdef void write_line(self, Sink* sink, Sub* sub, Message* msg,
                         const char* verb) noexcept nogil
    cdef void count_delivery(self, Sink* sink, size_t size) noexcept nogil
    cdef void queue(self, Sink* sink, const char* p, size_t n) noexcept nogil
    cdef void no_responders(self, SubList interest, Sink* source, Message* msg) noexcept
    cdef void mark_dirty(self, Sink* sink) noexcept nogil
    cdef void list_dirty(self, Sink* sink) noexcept nogil
    cdef void note_spent(self, Sub* sub) noexcept nogil
    cdef void hand_to_callback(self, Sub* sub, Sink* source, Message* msg)
    cdef uint32_t below(self, uint32_t n) noexcept nogil

cdef inline bint is_pressed(Sink* sink, int64_t now_ns) noexcept nogil:
    """Whether many bytes wait for a full socket that accepted some within PROGRESS_NS."""
    return (sink.flags & (SINK_BLOCKED | SINK_CLOSING) == SINK_BLOCKED
            and sink.out.pending > sink.pressure_at and now_ns - sink.progress_ns < PROGRESS_NS)

cdef size_t put_number(char* at, size_t value) noexcept nogil
