"""The fast lane of a stream: stores a plain message in C, while the router routes it.

A message is plain if the stream's configuration needs only an append and the limits by count, size
and subject. Its header may have an id and expectations. If an expectation fails, or the header has
any other stream key, the lane leaves the message to `Stream.plan`, with all that follows in the
same turn. Both paths append to the same log and use the same ids, so they have the same result; a
property test checks this.

Acks are also sent in C: at once if the store does not sync, otherwise after the sync that covers
them. At the end of a turn `commit_turn` commits and acks what was taken, if the store can append
directly. Otherwise the stream host does: `commit` marks the acks that its sync covers, `release`
allows them to be sent, `send_acks` sends them.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove

from penstock.base.sequences cimport SEQ_MAX
from penstock.broker.router cimport (
    COMMITTED, LANE_BROKEN, LANE_FINISHED, LANE_UNCOMMITTED, LaneResult, Message, Router,
    put_number,
)
from penstock.store.index.message_pack cimport Packed
from penstock.store.index.removal_index cimport take_out
from penstock.store.index.seq_list cimport seqs_first, seqs_last
from penstock.jetstream.streams.lanes.header_lines cimport Line, first_line, is_number, is_text, read_line
from penstock.subjects.trie_nodes cimport xrealloc
from penstock.subjects.trie cimport SubList

cdef enum:
    FAST_BATCH_LEN = 4
    ACK_BYTES_MAX = 640           # of a publish ack: the length of a stream name is bounded
    SIZES_BYTES_MAX = 32
    REMOVE = 3                    # record kind of a removal
    EVICTED_BYTES_MAX = 262144    # of messages evicted for a single new one

cdef int64_t LAST_NS = 0x7fffffffffffffff
cdef int64_t HEARD_NS = 10_000_000    # how often the owner of an unwatched lane is still called

cdef const char* FAST_BATCH = b".$FI"


@cython.final
cdef class StreamLane(Lane):
    def __cinit__(self, *, RecordLog log not None, Router router not None,
                  SubList interest not None, LaneListener listener not None, dict deadlines not None,
                  set exempt not None, bytes prefix not None, bytes name not None,
                  DuplicateWindow ids not None, StagedBatches batches not None,
                  Appender appender):
        self.log = log
        self.router = router
        self.interest = interest
        self.appender = appender
        self.waits = appender is not None
        self.syncs = appender is not None and appender.syncs
        self.listener = listener
        self.deadlines = deadlines
        self.exempt = exempt
        self.prefix = prefix
        self.name = name
        self.ids = ids
        self.batches = batches
        self.gone = []

    def __dealloc__(self):
        free(self.acks)
        free(self.text)

    def set_unattended(self, bint is_alone) -> None:
        """Set whether the host needs no immediate notice of what is taken; then no Python code
        runs."""
        self.is_alone = is_alone
        self.quiet = is_alone and self.appender is None

    def configure(self, *, bint is_open, bint packs, bint acks_wanted, bint discard_new, int64_t msgs_max,
                  int64_t bytes_max, int64_t per_subject_max, size_t payload_max) -> None:
        """Apply the configuration; a lane that is not open takes nothing."""
        self.is_open = is_open and len(self.prefix) < ACK_BYTES_MAX // 2
        self.batches.is_open = self.is_open and packs
        self.acks_wanted = acks_wanted
        self.discard_new = discard_new
        self.msgs_max = msgs_max
        self.bytes_max = bytes_max
        self.per_subject_max = per_subject_max
        self.payload_max = payload_max

    def close(self) -> None:
        """Take nothing from now on."""
        self.is_open = self.batches.is_open = False

    cdef bint take(self, Message* msg) noexcept:
        cdef int64_t size
        cdef uint64_t seq = 0
        cdef Text msg_id
        msg_id.n = 0
        if not self.is_open or msg.size > self.payload_max:
            return False
        if (msg.reply_len > FAST_BATCH_LEN
                and memcmp(msg.reply + msg.reply_len - FAST_BATCH_LEN, FAST_BATCH,
                           FAST_BATCH_LEN) == 0):
            return False
        if msg.hdr_len and not self.meets_expectations(msg, &msg_id):
            return self.stage(msg)
        if msg_id.n:
            seq = self.ids.seq_of(msg_id.at, msg_id.n,
                                  max(self.router.turn.wall_ns, self.log.last_ts_ns))
        if seq:
            self.acknowledge(seq, msg, True)
            return True
        size = self.log.size_of(msg.subject_len, msg.hdr_len, msg.size - msg.hdr_len)
        if not self.fits(msg, size):
            return False
        self.acknowledge(self.store(msg, &msg_id, size), msg, False)
        return True

    cdef bint stage(self, Message* msg) noexcept:
        """Stage a message of an atomic batch; False if the Python path must handle it."""
        cdef Packed one
        cdef bint was_idle = self.batches.wake_ns == 0
        if msg.reply_len or not self.batches.is_open:
            return False
        one.subject, one.subject_len = msg.subject, <uint32_t>msg.subject_len
        one.header, one.header_len = msg.body, <uint32_t>msg.hdr_len
        one.payload = msg.body + msg.hdr_len
        one.payload_len = <uint32_t>(msg.size - msg.hdr_len)
        if self.log.size_of(one.subject_len, one.header_len, one.payload_len) > self.room:
            return False
        if not self.batches.take(&one, self.router.turn.wall_ns):
            return False
        if was_idle:
            # The host must schedule the batch's expiry.
            self.heard_ns = 0
            self.quiet = False
        return True

    cdef bint meets_expectations(self, Message* msg, Text* msg_id) noexcept:
        """Return whether the stream meets the header's expectations and the header has no other
        stream key. Malformed headers are left to the Python path."""
        cdef const char* end = msg.body + msg.hdr_len
        cdef const char* at = first_line(msg.body, msg.hdr_len)
        cdef Line line
        while at != NULL and at < end:
            at = read_line(at, end, &line)
            if at == NULL or not line.is_special:
                continue
            if is_text(&line.key, b"Nats-Msg-Id", 11):
                if msg_id.n:
                    return False
                msg_id[0] = line.value
            elif not self.meets_expectation(msg, &line.key, &line.value):
                return False
        return at != NULL

    cdef bint meets_expectation(self, Message* msg, Text* key, Text* value) noexcept:
        cdef Subject* subject
        if is_text(key, b"Nats-Expected-Last-Subject-Sequence", 35):
            subject = self.log.subjects.find(msg.subject, msg.subject_len)
            return is_number(value, 0 if subject == NULL else seqs_last(&subject.seqs))
        if is_text(key, b"Nats-Expected-Last-Sequence", 27):
            return is_number(value, self.log.last_seq)
        if is_text(key, b"Nats-Expected-Stream", 20):
            return is_text(value, PyBytes_AS_STRING(self.name), PyBytes_GET_SIZE(self.name))
        if is_text(key, b"Nats-Expected-Last-Msg-Id", 25):
            return self.ids.is_last(value.at, value.n)
        return False

    cdef uint64_t store(self, Message* msg, Text* msg_id, int64_t size) noexcept:
        cdef int64_t before = self.log.last_ts_ns      # a mirror may have stored any timestamp
        cdef int64_t ts = max(self.router.turn.wall_ns, before + (before < LAST_NS))
        cdef uint64_t seq = self.log.put(
            msg.subject, msg.subject_len, msg.body, msg.hdr_len, msg.body + msg.hdr_len,
            msg.size - msg.hdr_len, ts, 0, 0)
        self.note_id(msg_id, seq, ts)
        self.room -= size
        self.taken += 1
        self.enforce(msg, ts)
        return seq

    cdef void note_id(self, Text* msg_id, uint64_t seq, int64_t ts) noexcept:
        if msg_id.n and self.ids.count == 0:
            # The host must schedule the id's expiry.
            self.heard_ns = 0
            self.quiet = False
        if msg_id.n:
            self.ids.put(msg_id.at, msg_id.n, seq, ts)
        self.ids.note_last(msg_id.at, msg_id.n)

    cdef void acknowledge(self, uint64_t seq, Message* msg, bint is_duplicate) noexcept:
        if not msg.reply_len or not self.acks_wanted:
            return
        if self.appender is None:
            self.send_ack(seq, msg.reply, msg.reply_len, is_duplicate)
        else:
            self.note_ack(seq, msg, is_duplicate)

    cdef bint fits(self, Message* msg, int64_t size) noexcept:
        """Return whether the message fits without a decision that only the Python path can make."""
        cdef bint trims
        if size > self.room or self.log.last_seq >= SEQ_MAX:
            return False
        if self.discard_new:
            if 0 < self.msgs_max <= <int64_t>self.log.msgs:
                return False
            if 0 < self.bytes_max < <int64_t>self.log.total_size + size:
                return False
            trims = self.per_subject_max > 0
        else:
            if 0 < self.bytes_max < <int64_t>self.log.total_size + size - EVICTED_BYTES_MAX:
                return False            # may evict thousands: the Python path works in slices
            trims = self.per_subject_max > 0 or self.msgs_max > 0 or self.bytes_max > 0
        # The log is not the only index of a message with a deadline.
        return not trims or (not self.deadlines and not self.exempt)

    cdef void enforce(self, Message* msg, int64_t ts) noexcept:
        cdef Subject* subject
        if self.per_subject_max > 0:
            subject = self.log.subjects.find(msg.subject, msg.subject_len)
            while subject != NULL and <int64_t>subject.seqs.count > self.per_subject_max:
                self.remove(seqs_first(&subject.seqs), ts)
        if self.discard_new:
            return
        while ((0 < self.msgs_max < <int64_t>self.log.msgs)
               or (0 < self.bytes_max < <int64_t>self.log.total_size)):
            self.remove(self.log.first_seq, ts)

    cdef void remove(self, uint64_t seq, int64_t ts) noexcept:
        if take_out(self.log, seq):
            self.log.note_range(REMOVE, seq, seq, ts)
            if not self.is_alone:
                self.gone.append(seq)

    cdef void note_ack(self, uint64_t seq, Message* msg, bint is_duplicate) noexcept nogil:
        cdef Ack* ack
        if self.nacks == self.acks_cap:
            self.acks_cap = 2 * self.acks_cap + 64
            self.acks = <Ack*>xrealloc(self.acks, self.acks_cap * sizeof(Ack))
        if self.text_len + msg.reply_len > self.text_cap:
            self.text_cap = 2 * self.text_cap + 64 * <uint32_t>msg.reply_len
            self.text = <char*>xrealloc(self.text, self.text_cap)
        ack = self.acks + self.nacks
        ack.seq = seq
        ack.offset = self.text_len
        ack.length = <uint32_t>msg.reply_len
        ack.is_duplicate = is_duplicate
        memcpy(self.text + self.text_len, msg.reply, msg.reply_len)
        self.text_len += ack.length
        self.nacks += 1

    # -- news for the stream host

    def take_results(self) -> tuple:
        """Return (messages taken, sequences that limits removed) since the last call."""
        self.heard_ns = self.router.turn.now_ns
        taken, self.taken = self.taken, 0
        gone, self.gone = self.gone, []
        return taken, gone

    # -- acks

    cdef LaneResult commit_turn(self) except LANE_BROKEN:
        """Commit what the lane took and send the acks, if the store can append directly."""
        if self.appender is None or self.ncommitting or not self.appender.append():
            return LANE_UNCOMMITTED
        self.nreleased = self.ncommitting = self.nacks
        self.send_acks()
        if self.is_alone and self.router.turn.now_ns - self.heard_ns < HEARD_NS:
            return LANE_FINISHED
        return COMMITTED

    @property
    def waiting(self) -> int:
        """The number of acks that wait for a sync that has not started."""
        return self.nacks - self.ncommitting

    def commit(self) -> int:
        """Mark all recorded acks as covered by the sync that starts now; return how many."""
        self.ncommitting = self.nacks
        return self.ncommitting - self.nreleased

    def release(self) -> None:
        """Allow the acks that the finished sync covers to be sent."""
        self.nreleased = self.ncommitting

    def forget(self) -> None:
        """Drop all acks: the sync failed, or the stream is closed."""
        self.nacks = self.ncommitting = self.nreleased = self.text_len = 0

    def send_acks(self) -> int:
        """Send the released acks; return how many."""
        cdef Ack* ack
        cdef uint32_t i, used, sent = self.nreleased
        if sent == 0:
            return 0
        for i in range(sent):
            ack = self.acks + i
            self.send_ack(ack.seq, self.text + ack.offset, ack.length, ack.is_duplicate)
        used = self.acks[sent - 1].offset + self.acks[sent - 1].length
        self.drop_sent(sent, used)
        return sent

    cdef void send_ack(self, uint64_t seq, const char* to, size_t to_len,
                       bint is_duplicate) noexcept:
        cdef char body[ACK_BYTES_MAX]
        cdef char sizes[SIZES_BYTES_MAX]
        cdef Message msg
        cdef size_t n = PyBytes_GET_SIZE(self.prefix)
        memcpy(body, PyBytes_AS_STRING(self.prefix), n)
        n += put_number(body + n, seq)
        if is_duplicate:
            memcpy(body + n, b',"duplicate": true', 18)
            n += 18
        memcpy(body + n, b"}\r\n", 3)
        msg.reply = NULL
        msg.reply_len = msg.hdr_len = 0
        msg.subject = to
        msg.subject_len = to_len
        msg.body = body
        msg.size = n + 1
        msg.sizes = sizes
        n = put_number(sizes, msg.size)
        memcpy(sizes + n, b"\r\n", 2)
        msg.sizes_len = n + 2
        self.router.route(self.interest, NULL, &msg)

    cdef void drop_sent(self, uint32_t sent, uint32_t used) noexcept nogil:
        cdef uint32_t i
        memmove(self.acks, self.acks + sent, (self.nacks - sent) * sizeof(Ack))
        memmove(self.text, self.text + used, self.text_len - used)
        self.nacks -= sent
        self.ncommitting -= sent
        self.nreleased = 0
        self.text_len -= used
        for i in range(self.nacks):
            self.acks[i].offset -= used
