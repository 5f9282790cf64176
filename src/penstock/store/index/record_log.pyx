"""The record log: messages appended to blocks, with a list of sequences for every subject.

Payload bytes are stored once, in the image of their block. A durable log also holds records about
sequences: removals, skips, how far the log is durable, and the loss floor, above which no subject
has lost its newest message. `removal_index` removes messages.

Works in memory only. The stores decide on files, syncing, sealing and recovery. One owner uses a
log, on one thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.string cimport memset

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.record_codec cimport (
    FLOOR, MARK, RANGE_BYTES, RECORD_BYTES_MAX, REMOVE, SKIP, SUBJECT_BYTES_MAX, RecordView,
    message_length, put_message, put_range, read_record,
)
from penstock.store.index.seq_list cimport seqs_push
from penstock.store.index.subject_index cimport count_message
from penstock.subjects.trie_nodes cimport xrealloc

from typing import NamedTuple

cdef enum:
    LOOKS_MAX = 8               # single-record reads of a cold block; then load the whole block
    SHED_AT_ONCE = 4096         # subjects freed at a time
    NEAR_SEQS = 64              # a read this close to the previous one counts as sequential

cdef uint64_t ALL_VISIBLE = 0xffffffffffffffffULL
cdef uint64_t LINEAGE_STEP = 0x9e3779b97f4a7c15ULL


class MessageRecord(NamedTuple):
    """A stored message."""

    seq: int
    ts_ns: int
    subject: str
    header: bytes
    payload: bytes


class Cold(NamedTuple):
    """The block with the message is not in memory: load it, or only the record of `seq`."""

    block: int
    seq: int = 0


class DamagedRecord(Exception):
    """The record of this sequence is not what was written."""


cdef uint64_t grown(uint64_t lineage, uint64_t seq, uint64_t ts, uint32_t length) noexcept nogil:
    """Return a block's lineage after one more record; uses only fields that erasing keeps."""
    lineage = (lineage ^ seq) * LINEAGE_STEP
    lineage = ((lineage << 29) | (lineage >> 35)) ^ ts
    return (lineage + length) * LINEAGE_STEP


cdef class RecordLog(BlockList):
    def __cinit__(self, *, uint64_t incarnation=0, bytes meta=b"", size_t block_bytes=8388608,
                  bint durable=False, uint64_t seed=0, uint64_t first_seq=1, int form=0):
        """`durable`: removals write records, so that recovery knows of them."""
        if not 0 < first_seq <= SEQ_MAX + 1:
            raise ValueError(f"no stream begins at sequence {first_seq}")
        self.form = form
        self.incarnation = incarnation
        self.meta = meta
        self.block_bytes = block_bytes
        self.records_removals = durable
        self.counts_as_file = durable
        self.subjects = SubjectIndex(seed=seed)
        self.first_seq = first_seq
        self.last_seq = first_seq - 1
        self.next_number = 1
        self.visible_max = ALL_VISIBLE
        self.loose = {}
        self.retired = []

    # -- appending

    def append(self, str subject not None, bytes header not None, bytes payload not None,
               int64_t ts_ns, *, uint64_t seq=0, int64_t deadline_ns=0) -> int:
        """Append a message; return its sequence."""
        cdef bytes raw = as_raw(subject)
        if seq and seq <= self.last_seq:
            raise ValueError(f"sequence {seq} is not behind {self.last_seq}")
        return self.put(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), PyBytes_AS_STRING(header),
                        PyBytes_GET_SIZE(header), PyBytes_AS_STRING(payload),
                        PyBytes_GET_SIZE(payload), ts_ns, seq, deadline_ns)

    def append_batch(self, list messages not None, int64_t ts_ns) -> int:
        """Append messages given as (subject bytes, header, payload); return the first sequence.

        As cheap as a publish lane: the benchmarks of the store use it.
        """
        cdef uint64_t first = self.last_seq + 1
        cdef bytes subject, header, payload
        for subject, header, payload in messages:
            self.put(PyBytes_AS_STRING(subject), PyBytes_GET_SIZE(subject),
                     PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header),
                     PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload), ts_ns, 0, 0)
        return first

    cdef uint64_t put(self, const char* subject, size_t subject_len, const char* header,
                      size_t header_len, const char* payload, size_t payload_len, int64_t ts,
                      uint64_t seq, int64_t deadline_ns):
        cdef size_t length = message_length(subject_len, header_len, payload_len, deadline_ns)
        cdef Block* block
        cdef char* at
        if seq == 0:
            seq = self.last_seq + 1
        if seq <= self.last_seq or seq > SEQ_MAX:
            raise ValueError(f"no message can have sequence {seq} after {self.last_seq}")
        if subject_len > SUBJECT_BYTES_MAX or length > RECORD_BYTES_MAX:
            raise ValueError("subject or message are too long for a record")
        if seq > self.last_seq + 1:
            self.note_range(SKIP, self.last_seq + 1, seq - 1, ts)
        at = self.room(length, seq, ts)
        block = self.blocks[self.block_last - 1]
        if seq < block.first_seq + block.nentries:
            raise ValueError(f"the open block is beyond sequence {seq}")
        put_message(at, length, &block.keys, seq, ts, subject, subject_len, header, header_len,
                    payload, payload_len, deadline_ns)
        self.add_entry(block, seq, ts, <uint32_t>block.used, <uint32_t>length,
                       self.subjects.intern(subject, subject_len),
                       self.size_of(subject_len, header_len, payload_len))
        block.used += length
        block.records += 1
        block.lineage = grown(block.lineage, seq, <uint64_t>ts, <uint32_t>length)
        return seq

    cdef void add_entry(self, Block* block, uint64_t seq, int64_t ts, uint32_t offset,
                        uint32_t length, Subject* subject, uint32_t size) noexcept nogil:
        """Add an entry. The caller has checked that the block has no entry at or after `seq` and
        may extend that far."""
        cdef uint64_t at = seq - block.first_seq
        cdef uint32_t cap
        cdef Entry* entry
        if at >= block.entries_cap:
            cap = max(<uint32_t>(at + 1), block.entries_cap + block.entries_cap // 2 + 16)
            block.entries = <Entry*>xrealloc(block.entries, <size_t>cap * sizeof(Entry))
            block.entries_cap = cap
        if at > block.nentries:
            memset(block.entries + block.nentries, 0, (at - block.nentries) * sizeof(Entry))
        entry = block.entries + at
        entry.ts = ts
        entry.offset = offset
        entry.length = length
        entry.subject = subject.id
        entry.size = size
        block.nentries = <uint32_t>(at + 1)
        block.live += 1
        block.live_bytes += length
        seqs_push(&subject.seqs, seq)
        count_message(self.subjects, subject.id, 1)
        if self.msgs == 0:
            self.first_seq = seq
        self.msgs += 1
        self.total_size += size
        self.last_seq = seq
        self.last_ts_ns = ts

    cdef uint32_t size_of(self, size_t subject_len, size_t header_len,
                          size_t payload_len) noexcept nogil:
        """Return the size that limits count, as the reference server computes it."""
        if self.counts_as_file:
            return <uint32_t>(30 + subject_len + payload_len + (4 + header_len if header_len else 0))
        return <uint32_t>(16 + subject_len + header_len + payload_len)

    # -- first and last sequence

    def skip(self, uint64_t last, int64_t ts_ns) -> None:
        """Assign every sequence up to `last` without a message; they stay empty forever."""
        if last <= self.last_seq or last > SEQ_MAX:
            raise ValueError(f"sequences cannot be skipped from {self.last_seq} to {last}")
        self.note_range(SKIP, self.last_seq + 1, last, ts_ns)
        self.last_seq = last
        self.last_ts_ns = ts_ns
        if self.msgs == 0:
            self.first_seq = last + 1

    def restart_at(self, uint64_t seq) -> None:
        """Continue an empty log at `seq`, as if all earlier sequences had been removed."""
        if self.msgs or seq <= self.last_seq or seq > SEQ_MAX + 1:
            raise ValueError(f"a log of {self.msgs} messages cannot go on at sequence {seq}")
        if seq > self.last_seq + 1:
            self.note_range(SKIP, self.last_seq + 1, seq - 1, self.last_ts_ns)
        self.last_seq = seq - 1
        self.first_seq = seq

    def truncate(self, uint64_t seq) -> list:
        """Forget everything after `seq`; the caller has already removed the live messages there.

        Returns the numbers of the blocks forgotten with it.
        """
        cdef int64_t ts_ns = self.last_ts_ns
        cdef list block_numbers
        if seq > self.last_seq:
            raise ValueError(f"sequence {seq} is behind the last one, {self.last_seq}")
        block_numbers = self.cut_back(seq)
        if self.records_removals:
            # A block that starts at a used sequence revokes what earlier blocks record from there.
            self.new_block(seq + 1, ts_ns)
            self.note_range(SKIP, seq + 1, seq, self.last_ts_ns)     # empty: records only the time
        return block_numbers

    cdef list cut_back(self, uint64_t seq):
        """Do the same without a record in the log."""
        cdef Block* block
        cdef uint64_t last
        cdef list block_numbers = []
        while self.block_last > self.block_first:
            block = self.blocks[self.block_last - 1]
            if block.first_seq <= seq:
                break
            block_numbers.append(block.number)
            self.forget_block(self.block_last - 1)
        if self.block_last > self.block_first:
            block = self.blocks[self.block_last - 1]
            if block.first_seq + block.nentries > seq + 1:
                block.nentries = <uint32_t>(seq + 1 - block.first_seq)
            block.last_seq = min(block.last_seq, seq)
        self.last_seq = seq
        last = self.live_before(seq)
        self.last_ts_ns = self.ts_of(last) if last else 0
        if self.msgs == 0:
            self.first_seq = seq + 1
        return block_numbers

    def drop_dead_blocks(self) -> list:
        """Forget the oldest blocks while they hold no live message; return their numbers.

        Only the oldest: a later block may hold records about sequences of earlier ones.
        """
        block_numbers = []
        while self.has_dead_front():
            block_numbers.append(self.blocks[self.block_first].number)
            self.forget_block(self.block_first)
        if block_numbers:
            self.note_range(FLOOR, self.oldest_seq(), self.oldest_seq(), self.last_ts_ns)
        return block_numbers

    cdef void renew_subjects(self):
        """Replace the subject index by an empty one, as no message is left."""
        cdef SubjectIndex old = self.subjects
        self.subjects = old.renewed()
        if len(old) > SHED_AT_ONCE:
            self.retired.append(old)

    @property
    def has_remains(self) -> bool:
        """Whether `shed` has memory to free."""
        return bool(self.retired)

    def shed(self, uint32_t at_most=SHED_AT_ONCE) -> bool:
        """Free some memory of a replaced subject index; return whether more is left."""
        cdef SubjectIndex old
        if self.retired:
            old = self.retired[0]
            if not old.release_some(at_most):
                self.retired.pop(0)
        return bool(self.retired)

    cdef void move_first(self) noexcept nogil:
        """Update the first sequence after its message was removed."""
        cdef uint64_t following = self.live_from(self.first_seq)
        self.first_seq = following if following else self.last_seq + 1

    # -- range records

    cpdef object note_range(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns):
        """Append a record about a range of sequences, for recovery."""
        cdef char* at
        cdef Block* block
        if not self.records_removals:
            return
        at = self.room(RANGE_BYTES, self.last_seq + 1, ts_ns)
        block = self.blocks[self.block_last - 1]
        block.used += put_range(at, &block.keys, kind, first, last, ts_ns)
        block.records += 1
        block.lineage = grown(block.lineage, first, last, RANGE_BYTES)
        if kind == FLOOR or ((kind == REMOVE or kind == SKIP) and first <= last):
            self.is_loss_unsaid = True

    cdef void note_in_place(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns):
        """Append a record to the open block even if it is full: it describes earlier records."""
        cdef size_t limit = self.block_bytes
        if self.active() == NULL:
            return
        self.block_bytes = <size_t>-1
        self.note_range(kind, first, last, ts_ns)
        self.block_bytes = limit

    cpdef object note_loss(self):
        """Record loss floor and count if anything was removed: a REMOVE with an empty range.

        Returns the count that the log has now recorded.
        """
        if not self.is_loss_unsaid or self.active() == NULL:
            return self.losses_said
        self.note_in_place(REMOVE, self.loss_floor + 1 + self.losses, self.loss_floor,
                           self.last_ts_ns)
        self.losses_said = self.losses
        self.is_loss_unsaid = False
        return self.losses_said

    cpdef object note_mark(self, uint64_t number, uint64_t place, uint64_t durable_seq):
        """Record that all blocks before this one, and this one up to `place`, are durable."""
        self.mark_block = number
        self.mark_place = place
        self.note_in_place(MARK, number, place, durable_seq)

    # -- reading

    def load(self, uint64_t seq):
        """Return the message, None if it is missing, or Cold."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        if entry == NULL:
            return None
        return self.read(block, entry, seq)

    cdef object read(self, Block* block, Entry* entry, uint64_t seq):
        cdef RecordView view
        cdef const char* record
        cdef bytes kept
        if block.image != NULL:
            record = block.image + entry.offset
        else:
            layout, kept = self.loose.get((block.number, seq), (0, None))
            if kept is None or layout != block.layout:
                return self.cold(block, seq)
            record = kept
        if read_record(record, entry.length, &block.keys, &view,
                       not block.verified or block.image == NULL) != 0:
            raise DamagedRecord(seq)
        return MessageRecord(seq, view.ts, as_text(view.subject, view.subject_len),
                             view.header[:view.header_len], view.payload[:view.payload_len])

    cdef object cold(self, Block* block, uint64_t seq):
        cdef bint near = (seq != self.looked_at
                          and seq - self.looked_at + NEAR_SEQS <= 2 * NEAR_SEQS)
        self.looked_at = seq
        block.looks += 1
        return Cold(block.number, 0 if near or block.looks > LOOKS_MAX else seq)

    def place_of(self, uint64_t seq):
        """Return (offset, length) of a record in the image of its block; None if missing."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        return None if entry == NULL else (entry.offset, entry.length)

    def ts_of(self, uint64_t seq) -> int:
        """Return the timestamp of a message; 0 if it is missing."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        return 0 if entry == NULL else entry.ts

    def size_at(self, uint64_t seq) -> int:
        """Return the size that limits count for a message; 0 if it is missing."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        return 0 if entry == NULL else entry.size

    def message_size(self, str subject not None, bytes header not None,
                     bytes payload not None) -> int:
        """Return the size that such a message would count."""
        return self.size_of(len(as_raw(subject)), len(header), len(payload))
