"""C declarations of ClientLink: the protocol side of one client connection, without its socket."""

cimport cython
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.broker.outbox cimport Outbox
from penstock.broker.router cimport Message, Owner, Router, Sink
from penstock.server.net.sid_table cimport SidTable
from penstock.subjects.trie_nodes cimport Sub
from penstock.subjects.trie cimport SubList
from penstock.wire.parser cimport Frame, Limits

cdef enum:
    WORK_PER_LOOK = 16384         # units of work between two clock readings: about 1 ms
    DROPS_AT_ONCE = 4096          # subscriptions dropped before other clients are served


@cython.final
cdef class ClientLink(Owner):
    # identity and wiring
    cdef readonly uint64_t cid
    cdef readonly object handler
    cdef Router router
    cdef SubList interest
    cdef list closing             # links to close when the turn ends; owned by the IoLoop
    # protocol state
    cdef Sink sink
    cdef Limits limits
    cdef SidTable sids
    cdef uint32_t max_subs        # 0: no limit
    cdef uint32_t max_sub_tokens  # 0: no limit
    cdef bint verbose
    cdef bint pedantic
    cdef bint no_responders
    cdef bint login_needed        # only CONNECT is accepted
    cdef bint pinged
    cdef bint traced
    cdef bint guards_publish
    cdef bint guards_subscribe
    cdef bint may_respond
    cdef bint imports             # report subscriptions and unsubscriptions to the handler
    cdef bint maps                # the account's mappings may rewrite published subjects
    cdef bint in_system_account
    cdef bint samples             # a traceparent header may request a trace
    cdef bytes mapped             # the last rewritten subject
    cdef SubList pub_allow
    cdef SubList pub_deny
    cdef SubList deliver_deny
    cdef bint held                # further input waits until release()
    cdef uint32_t connects        # CONNECTs processed
    cdef uint32_t dropped_to      # slots of `sids` that `drop_some` has emptied
    cdef readonly object close_reason
    # counters
    cdef readonly uint64_t in_msgs
    cdef readonly uint64_t in_bytes
    cdef readonly uint32_t stalls
    # transport, owned by the IoLoop
    cdef int fd
    cdef uint32_t events
    cdef char* carry              # the start of an incomplete frame
    cdef size_t carry_len
    cdef size_t carry_cap
    cdef size_t need
    cdef readonly object codec
    cdef bint transport_ready     # the codec's handshake is complete
    cdef Outbox encoded           # transport bytes produced by a codec
    cdef int64_t last_active_ns
    cdef int64_t blocked_since_ns
    cdef int64_t blocked_goal     # bytes that must have left by the write deadline
    cdef int64_t sent
    cdef bint deferred            # received bytes wait for a later turn; no reads before that
    cdef bint awaits_turn         # on the IoLoop's list of deferred links
    cdef object ended             # None, or the CodecEnd that ended the transport
    cdef bint stalled             # publishes faster than a receiver reads: reads are suspended
    cdef bint backlogged          # its messages wait for internal subscribers: no reads
    cdef bint paused              # its requests wait in a queue: no reads
    cdef bint awaits_deadline     # on the list of links that have a write deadline
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

cdef void remove_exhausted_subs(Router router) noexcept
