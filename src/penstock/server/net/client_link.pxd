"""C surface of a link: one client's side of the protocol, without its socket."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.outbox cimport Outbox
from penstock.broker.router cimport Message, Owner, Router, Sink
from penstock.server.net.sid_table cimport SidTable
from penstock.subjects.trie_nodes cimport Sub
from penstock.subjects.trie cimport SubList
from penstock.wire.parser cimport Frame, Limits

cdef enum:
    WORK_PER_LOOK = 16384         # units of work between two looks at the clock: about 1 ms
    DROPS_AT_ONCE = 4096          # subscriptions dropped before other clients are served


cdef class ClientLink(Owner):
    # identity and wiring
    cdef readonly uint64_t cid
    cdef readonly object handler
    cdef Router router
    cdef SubList interest
    cdef list doomed              # links that are to be closed when the turn ends; the plane's
    # protocol state
    cdef Sink sink
    cdef Limits limits
    cdef SidTable sids
    cdef uint32_t max_subs        # 0: no limit
    cdef uint32_t max_sub_tokens  # 0: no limit
    cdef bint verbose
    cdef bint pedantic
    cdef bint no_responders
    cdef bint login_needed        # nothing but CONNECT is heard
    cdef bint pinged
    cdef bint traced
    cdef bint guards_publish
    cdef bint guards_subscribe
    cdef bint may_respond
    cdef bint imports             # the handler wants to know of subscriptions that come and go
    cdef bint maps                # published subjects may become others
    cdef bint in_system_account
    cdef bint samples             # a header traceparent may ask for a trace
    cdef bytes mapped             # what the last one became
    cdef SubList pub_allow
    cdef SubList pub_deny
    cdef SubList deliver_deny
    cdef bint held                # what comes next waits until release()
    cdef uint32_t connects        # CONNECTs obeyed
    cdef uint32_t dropped_to      # slots of `sids` that `drop_some` has emptied
    cdef readonly object close_reason
    # counters
    cdef readonly uint64_t in_msgs
    cdef readonly uint64_t in_bytes
    cdef readonly uint32_t stalls
    # transport, owned by the plane
    cdef int fd
    cdef uint32_t events
    cdef char* carry              # the start of a frame that is not whole yet
    cdef size_t carry_len
    cdef size_t carry_cap
    cdef size_t need
    cdef readonly object codec
    cdef bint transport_ready     # the codec has shaken hands
    cdef Outbox encoded           # transport bytes, when a codec makes them
    cdef int64_t last_active_ns
    cdef int64_t blocked_since_ns
    cdef int64_t blocked_goal     # bytes that must have left by the write deadline
    cdef int64_t sent
    cdef bint deferred            # received bytes are obeyed in a later turn; not read before
    cdef bint awaits_turn         # on the plane's list of deferred links
    cdef object ended             # None, or why the codec gives out nothing more
    cdef bint stalled             # a publisher ahead of its readers: not read for a moment
    cdef bint backlogged          # messages of its for internal subscribers wait: not read
    cdef bint paused              # requests of its wait: not read
    cdef bint awaits_deadline     # on the plane's list of links whose writes have a deadline
    cdef bint closed

    cdef size_t consume(self, const char* p, size_t n) except? 0
    cdef int trace_frame(self, Frame* frame) except -1
    cdef int obey(self, Frame* frame) except -1
    cdef void on_publish(self, Frame* frame) noexcept
    cdef int on_sub(self, Frame* frame) except -1
    cdef void on_unsub(self, Frame* frame) noexcept
    cdef int on_ping(self) except -1
    cdef bint may_publish(self, const char* subject, size_t n) noexcept
    cdef int publish_traced(self, Message* asked) except -1
    cdef int map_subject(self, Message* msg) except -1
    cdef void route_uneven(self, Frame* frame, Message* msg) noexcept
    cdef void remove_sub(self, Sub* sub) noexcept
    cdef void say(self, const char* text, size_t n) noexcept nogil
    cdef void ok(self) noexcept nogil
    cdef int fault(self, Frame* frame) except -1
    cdef bint drop_some(self, uint32_t slots) except -1
    cdef bint may_connect(self) except -1

cdef void settle_spent(Router router) noexcept
