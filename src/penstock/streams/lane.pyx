"""The fast lane of a stream: an ordinary message is stored where it is routed, in C.

Ordinary is a message without headers, to a stream whose configuration needs nothing but appending
and the limits by number, size and subject. Everything else is left to `Stream.plan`, and with it
whatever follows in the same turn. Both lanes end in the same log, so they mean the same; a
property test holds them to it.

Acknowledgements are sent in C, too: at once where nothing is synced, else noted with their sequence
until the sync they wait for has returned: `commit` says which those are, `release` that they may
go, `send_acks` sends them.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy, memmove

from penstock.broker.router cimport Message, Router, put_number
from penstock.store.seqlist cimport seqs_first
from penstock.subjects.nodes cimport xrealloc
from penstock.subjects.trie cimport SubList

cdef enum:
    FAST_BATCH_LEN = 4
    ACK_BYTES_MAX = 640           # of an acknowledgement: the name of a stream is bounded
    SIZES_BYTES_MAX = 32
    REMOVE = 3                    # the record that says so

cdef const char* FAST_BATCH = b".$FI"


cdef class StreamLane(Lane):
    def __cinit__(self, *, RecordLog log not None, Router router not None,
                  SubList interest not None, call, owner, dict deadlines not None,
                  set exempt not None, bytes prefix not None, bint at_once):
        self.log = log
        self.router = router
        self.interest = interest
        self.at_once = at_once
        self.call = call
        self.owner = owner
        self.deadlines = deadlines
        self.exempt = exempt
        self.prefix = prefix
        self.gone = []

    def __dealloc__(self):
        free(self.acks)
        free(self.text)

    def set_quiet(self, bint quiet) -> None:
        """Whether nobody needs to know at once what it takes: then no Python runs for it."""
        self.quiet = quiet and self.at_once

    def configure(self, *, bint is_open, bint acks_wanted, bint discard_new, int64_t msgs_max,
                  int64_t bytes_max, int64_t per_subject_max, size_t payload_max) -> None:
        """What the configuration says; a lane that is not open takes nothing."""
        self.is_open = is_open and len(self.prefix) < ACK_BYTES_MAX // 2
        self.acks_wanted = acks_wanted
        self.discard_new = discard_new
        self.msgs_max = msgs_max
        self.bytes_max = bytes_max
        self.per_subject_max = per_subject_max
        self.payload_max = payload_max

    def close(self) -> None:
        """From now on it takes nothing."""
        self.is_open = False

    cdef bint take(self, Message* msg) noexcept:
        cdef int64_t size, ts
        cdef uint64_t seq
        if not self.is_open or msg.hdr_len or msg.size > self.payload_max:
            return False
        if (msg.reply_len > FAST_BATCH_LEN
                and memcmp(msg.reply + msg.reply_len - FAST_BATCH_LEN, FAST_BATCH,
                           FAST_BATCH_LEN) == 0):
            return False
        size = self.log.size_of(msg.subject_len, 0, msg.size)
        if not self.fits(msg, size):
            return False
        ts = max(self.router.wall_ns, self.log.last_ts_ns + 1)
        seq = self.log.put(msg.subject, msg.subject_len, NULL, 0, msg.body, msg.size, ts, 0, 0)
        self.room -= size
        self.taken += 1
        self.enforce(msg, ts)
        if msg.reply_len and self.acks_wanted:
            if self.at_once:
                self.send_ack(seq, msg.reply, msg.reply_len)
            else:
                self.note_ack(seq, msg)
        return True

    cdef bint fits(self, Message* msg, int64_t size) noexcept:
        """Whether limits have nothing to say that only the other lane can answer."""
        cdef bint trims
        if size > self.room:
            return False
        if self.discard_new:
            if 0 < self.msgs_max <= <int64_t>self.log.msgs:
                return False
            if 0 < self.bytes_max < <int64_t>self.log.total_size + size:
                return False
            trims = self.per_subject_max > 0
        else:
            trims = self.per_subject_max > 0 or self.msgs_max > 0 or self.bytes_max > 0
        # A message with a deadline is not only in the log.
        return not trims or (not self.deadlines and not self.exempt)

    cdef void enforce(self, Message* msg, int64_t ts) noexcept:
        cdef Subject* subject
        if self.per_subject_max > 0:
            subject = self.log.subjects.find(msg.subject, msg.subject_len)
            while subject != NULL and <int64_t>subject.seqs.count > self.per_subject_max:
                self.take_out(seqs_first(&subject.seqs), ts)
        if self.discard_new:
            return
        while ((0 < self.msgs_max < <int64_t>self.log.msgs)
               or (0 < self.bytes_max < <int64_t>self.log.total_size)):
            self.take_out(self.log.first_seq, ts)

    cdef void take_out(self, uint64_t seq, int64_t ts) noexcept:
        if self.log.take_out(seq):
            self.log.note_range(REMOVE, seq, seq, ts)
            self.gone.append(seq)

    cdef void note_ack(self, uint64_t seq, Message* msg) noexcept nogil:
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
        memcpy(self.text + self.text_len, msg.reply, msg.reply_len)
        self.text_len += ack.length
        self.nacks += 1

    # -- what happened, for the other lane

    def take_news(self) -> tuple:
        """(messages taken, sequences that limits took out) since the last call."""
        taken, self.taken = self.taken, 0
        gone, self.gone = self.gone, []
        return taken, gone

    # -- acknowledgements

    @property
    def waiting(self) -> int:
        """Acknowledgements that wait for a sync that has not begun."""
        return self.nacks - self.ncommitting

    def commit(self) -> int:
        """A sync begins: it is for all acknowledgements noted so far. Answers how many."""
        self.ncommitting = self.nacks
        return self.ncommitting - self.nreleased

    def release(self) -> None:
        """The sync has returned: what it was for may be sent."""
        self.nreleased = self.ncommitting

    def forget(self) -> None:
        """The sync has failed, or nobody is there any more: nothing is acknowledged."""
        self.nacks = self.ncommitting = self.nreleased = self.text_len = 0

    def send_acks(self) -> int:
        """Sends what may be sent; answers how many that were."""
        cdef Ack* ack
        cdef uint32_t i, used, sent = self.nreleased
        if sent == 0:
            return 0
        for i in range(sent):
            ack = self.acks + i
            self.send_ack(ack.seq, self.text + ack.offset, ack.length)
        used = self.acks[sent - 1].offset + self.acks[sent - 1].length
        self.drop_sent(sent, used)
        return sent

    cdef void send_ack(self, uint64_t seq, const char* to, size_t to_len) noexcept:
        cdef char body[ACK_BYTES_MAX]
        cdef char sizes[SIZES_BYTES_MAX]
        cdef Message msg
        cdef size_t n = PyBytes_GET_SIZE(self.prefix)
        memcpy(body, PyBytes_AS_STRING(self.prefix), n)
        n += put_number(body + n, seq)
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
