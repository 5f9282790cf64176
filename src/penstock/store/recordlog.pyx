"""The record log: messages in block images, with an entry for every sequence.

One array entry per sequence says where its record lies, when it came, which subject it has and
how large it counts; one list per subject says which sequences it has. Payload bytes live once, in
their block's image, which for a sealed block can be dropped and put back.

Pure memory. Files, syncing, sealing and recovery are decided above; they ask for what they need.
One owner, one thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove, memset

from penstock.records.codec cimport (
    FLOOR, MARK, REMOVE, SKIP, erase_record, make_keys, message_length, put_message, put_range,
    read_record,
)
from penstock.store.imagememory cimport first_image, grow_image
from penstock.store.seqlist cimport seqs_last, seqs_push, seqs_remove
from penstock.store.subjectindex cimport count_message
from penstock.subjects.nodes cimport xalloc, xrealloc, xzalloc

from typing import NamedTuple

from penstock.store.blockheader import block_header

cdef enum:
    RANGE_RECORD_BYTES = 56
    IMAGE_BYTES_MIN = 65536
    GAP_MAX = 4096              # empty entries a block may hold for a gap; a longer one ends it
    ALIGNED_START = 8
    LOOKS_MAX = 8               # records of a cold block; then all of it is worth reading
    NEAR_SEQS = 64              # who asks for one so near to the last is reading on

cdef uint64_t ALL_VISIBLE = 0xffffffffffffffffULL
cdef uint64_t LINEAGE_STEP = 0x9e3779b97f4a7c15ULL

class MessageRecord(NamedTuple):
    """A message as it is stored."""

    seq: int
    ts_ns: int
    subject: str
    header: bytes
    payload: bytes


class Cold(NamedTuple):
    """The block that holds the answer is not in memory: load it, or the record of `seq` alone."""

    block: int
    seq: int = 0


class DamagedRecord(Exception):
    """The record of this sequence does not hold what it held when it was written."""


cdef uint64_t grown(uint64_t lineage, uint64_t seq, uint64_t ts, uint32_t length) noexcept nogil:
    """The lineage of a block with one record more. What erasing keeps goes in, nothing else."""
    lineage = (lineage ^ seq) * LINEAGE_STEP
    lineage = ((lineage << 29) | (lineage >> 35)) ^ ts
    return (lineage + length) * LINEAGE_STEP


cdef inline str as_text(const char* p, size_t n):
    return p[:n].decode("utf-8", "surrogateescape")
cdef inline bytes as_raw(str text):
    return text.encode("utf-8", "surrogateescape")


cdef class RecordLog:
    def __cinit__(self, *, uint64_t incarnation=0, bytes meta=b"", size_t block_bytes=8388608,
                  bint durable=False, uint64_t seed=0, uint64_t first_seq=1, int form=0):
        """`durable`: removals leave records, so that a recovery knows of them."""
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

    def __dealloc__(self):
        while self.block_last > self.block_first:
            self.forget_block(self.block_last - 1)
        free(self.blocks)
        free(self.spare.image)

    # -- blocks

    cdef Block* active(self) noexcept nogil:
        if self.block_last == self.block_first or self.blocks[self.block_last - 1].sealed:
            return NULL
        return self.blocks[self.block_last - 1]

    cdef Block* new_block(self, uint64_t first_seq, int64_t created_ns):
        cdef Block* block = <Block*>xzalloc(sizeof(Block))
        cdef uint32_t live = self.block_last - self.block_first
        cdef Block* before = self.blocks[self.block_last - 1] if live else NULL
        cdef bytes header
        if before != NULL:
            self.seal(before)
            block.previous = before.lineage
        header = block_header(self.incarnation, self.next_number, first_seq, created_ns,
                              block.previous, self.meta, form=self.form)
        block.number = self.next_number
        block.first_seq = first_seq
        block.verified = True
        make_keys(&block.keys, self.incarnation, block.number)
        block.lineage = block.keys.header_seed
        block.image = first_image(max(<size_t>IMAGE_BYTES_MIN, <size_t>len(header)),
                                  &block.image_cap, &self.spare.image, &self.spare.cap)
        memcpy(block.image, PyBytes_AS_STRING(header), len(header))
        block.head = block.used = len(header)
        if self.block_last == self.blocks_cap:
            if self.block_first > live:
                memmove(self.blocks, self.blocks + self.block_first, live * sizeof(Block*))
                self.block_first = 0
                self.block_last = live
            else:
                self.blocks_cap = 2 * self.blocks_cap + 8
                self.blocks = <Block**>xrealloc(self.blocks, self.blocks_cap * sizeof(Block*))
        self.blocks[self.block_last] = block
        self.block_last += 1
        self.next_number += 1
        return block

    cdef void seal(self, Block* block) noexcept nogil:
        """Nothing more is appended to it."""
        if block.sealed:
            return
        block.sealed = True
        block.last_seq = self.last_seq
        block.last_ts = self.last_ts_ns
        if block.nentries and block.nentries < block.entries_cap:
            block.entries = <Entry*>xrealloc(block.entries, block.nentries * sizeof(Entry))
            block.entries_cap = block.nentries

    def seal_active(self) -> None:
        """The next append starts a block."""
        cdef Block* block = self.active()
        if block != NULL:
            self.seal(block)

    cdef uint32_t index_at(self, uint64_t seq) noexcept nogil:
        """Behind the last block that starts at or before `seq`; block_first if all start later."""
        cdef uint32_t low = self.block_first, high = self.block_last, middle
        if low < high and self.blocks[high - 1].first_seq <= seq:
            return high
        if high - low > 1 and self.blocks[low].first_seq <= seq < self.blocks[low + 1].first_seq:
            return low + 1      # limits take the oldest: no need to look at all others
        while low < high:
            middle = (low + high) >> 1
            if self.blocks[middle].first_seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Block* block_at(self, uint64_t seq) noexcept nogil:
        """The last block that starts at or before `seq`; NULL if all start later."""
        cdef uint32_t i = self.index_at(seq)
        return self.blocks[i - 1] if i > self.block_first else NULL

    cdef Entry* entry_at(self, uint64_t seq, Block** where) noexcept nogil:
        """The live entry of a sequence, or NULL."""
        cdef Block* block = self.block_at(seq)
        if block == NULL or seq - block.first_seq >= block.nentries:
            return NULL
        where[0] = block
        if block.entries[seq - block.first_seq].offset == 0:
            return NULL
        return &block.entries[seq - block.first_seq]

    cdef char* room(self, size_t n, uint64_t seq, int64_t ts):
        """Room for a record of `n` bytes in the active block, or in a new one."""
        cdef Block* block = self.active()
        if (block == NULL or (block.used + n > self.block_bytes and block.nentries)
                or seq > block.first_seq + block.nentries + GAP_MAX):
            block = self.new_block(seq, ts)
        if block.used + n > block.image_cap:
            block.image = grow_image(block.image, block.used, block.used + n, self.block_bytes,
                                     &block.image_cap, &self.spare.image, &self.spare.cap)
        return block.image + block.used

    # -- appending

    def append(self, str subject not None, bytes header not None, bytes payload not None,
               int64_t ts_ns, *, uint64_t seq=0, int64_t deadline_ns=0) -> int:
        """Stores a message behind all others; answers its sequence."""
        cdef bytes raw = as_raw(subject)
        if seq and seq <= self.last_seq:
            raise ValueError(f"sequence {seq} is not behind {self.last_seq}")
        return self.put(PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw), PyBytes_AS_STRING(header),
                        PyBytes_GET_SIZE(header), PyBytes_AS_STRING(payload),
                        PyBytes_GET_SIZE(payload), ts_ns, seq, deadline_ns)

    def append_batch(self, list messages not None, int64_t ts_ns) -> int:
        """Stores (subject bytes, header, payload) of many messages; answers the first sequence."""
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
        elif seq > self.last_seq + 1:
            self.note_range(SKIP, self.last_seq + 1, seq - 1, ts)
        at = self.room(length, seq, ts)
        block = self.blocks[self.block_last - 1]
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
        cdef uint64_t at = seq - block.first_seq
        cdef uint32_t cap
        cdef Entry* entry
        if at >= block.entries_cap:
            cap = max(<uint32_t>(at + 1), block.entries_cap + block.entries_cap // 2 + 16)
            block.entries = <Entry*>xrealloc(block.entries, cap * sizeof(Entry))
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
        """What a message counts against limits, as the reference counts."""
        if self.counts_as_file:
            return <uint32_t>(30 + subject_len + payload_len + (4 + header_len if header_len else 0))
        return <uint32_t>(16 + subject_len + header_len + payload_len)

    def skip(self, uint64_t last, int64_t ts_ns) -> None:
        """Reserves every sequence up to `last`: none of them will ever hold a message."""
        if last <= self.last_seq:
            raise ValueError(f"sequence {last} is not behind {self.last_seq}")
        self.note_range(SKIP, self.last_seq + 1, last, ts_ns)
        self.last_seq = last
        self.last_ts_ns = ts_ns
        if self.msgs == 0:
            self.first_seq = last + 1

    cpdef object note_range(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns):
        """A record about sequences, for whoever recovers this log."""
        cdef char* at
        cdef Block* block
        if not self.records_removals:
            return
        at = self.room(RANGE_RECORD_BYTES, self.last_seq + 1, ts_ns)
        block = self.blocks[self.block_last - 1]
        block.used += put_range(at, &block.keys, kind, first, last, ts_ns)
        block.records += 1
        block.lineage = grown(block.lineage, first, last, RANGE_RECORD_BYTES)
        if kind == FLOOR or ((kind == REMOVE or kind == SKIP) and first <= last):
            self.is_loss_unsaid = True

    cdef void note_in_place(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns):
        """A record in the block that is open, be it full: it is about what lies before it."""
        cdef size_t limit = self.block_bytes
        if self.active() == NULL:
            return
        self.block_bytes = <size_t>-1
        self.note_range(kind, first, last, ts_ns)
        self.block_bytes = limit

    cpdef object note_loss(self):
        """Says the loss floor, if anything went since it was said: a removal that names nothing."""
        if not self.is_loss_unsaid or self.active() == NULL:
            return
        self.note_in_place(REMOVE, self.loss_floor + 1, self.loss_floor, self.last_ts_ns)
        self.is_loss_unsaid = False

    cpdef object note_mark(self, uint64_t number, uint64_t place, uint64_t durable_seq):
        """All blocks before this one, and this one up to a place in it, are durable."""
        self.mark_block = number
        self.mark_place = place
        self.note_in_place(MARK, number, place, durable_seq)

    def end(self) -> tuple:
        """(number, place) behind the last record; (0, 0) if there is no block."""
        cdef Block* block
        if self.block_first == self.block_last:
            return 0, 0
        block = self.blocks[self.block_last - 1]
        return block.number, block.used

    def active_number(self) -> int:
        """The block that is open; 0 if there is none."""
        cdef Block* block = self.active()
        return 0 if block == NULL else block.number

    # -- reading

    def load(self, uint64_t seq):
        """The message, None if it is not there, or Cold."""
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
        """(offset, length) of a record in the image of its block; None if there is none."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        return None if entry == NULL else (entry.offset, entry.length)

    cdef uint64_t live_from(self, uint64_t start) noexcept nogil:
        """The first live sequence at or after `start`; 0 if there is none."""
        cdef uint32_t i, index = self.index_at(start)
        cdef uint64_t at
        cdef Block* block
        for i in range(index - 1 if index > self.block_first else index, self.block_last):
            block = self.blocks[i]
            at = start - block.first_seq if start > block.first_seq else 0
            if block.live == 0:
                continue
            while at < block.nentries:
                if block.entries[at].offset:
                    return block.first_seq + at
                at += 1
        return 0

    def ts_of(self, uint64_t seq) -> int:
        """When a message came; 0 if it is not there."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        return 0 if entry == NULL else entry.ts

    def size_at(self, uint64_t seq) -> int:
        """What a message counts against limits; 0 if it is not there."""
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        return 0 if entry == NULL else entry.size

    def message_size(self, str subject not None, bytes header not None,
                     bytes payload not None) -> int:
        """What such a message would count."""
        return self.size_of(len(as_raw(subject)), len(header), len(payload))

    # -- removing

    def remove(self, uint64_t seq, int64_t ts_ns) -> int:
        """Takes a message out; answers the size it counted, 0 if it was not there."""
        cdef uint64_t size = self.take_out(seq)
        if size:
            self.note_range(REMOVE, seq, seq, ts_ns)
        return size

    def lose(self, uint64_t seq) -> None:
        """Takes a message out of which nothing can be read; all that is said is what was lost."""
        if self.take_out(seq):
            self.is_loss_unsaid = True
            self.note_loss()

    def erase(self, uint64_t seq, noise, int64_t ts_ns):
        """Overwrites a message in its image with `noise(n)`, and removes it.

        Answers (block, offset, length) of the bytes that must be written again, None if the
        message was not there, or Cold.
        """
        cdef Block* block
        cdef bytes random
        cdef Entry* entry = self.entry_at(seq, &block)
        if entry == NULL:
            return None
        if block.image == NULL:
            return Cold(block.number)
        random = noise(entry.length)
        if len(random) < <Py_ssize_t>entry.length:
            raise ValueError("less noise than there is to overwrite")
        place = (block.number, entry.offset, entry.length)
        self.loose.pop((block.number, seq), None)
        erase_record(block.image + entry.offset, &block.keys, random)
        self.remove(seq, ts_ns)
        return place

    cdef uint64_t take_out(self, uint64_t seq):
        cdef Block* block
        cdef Entry* entry = self.entry_at(seq, &block)
        cdef Subject* subject
        cdef uint32_t size
        if entry == NULL:
            return 0
        subject = self.subjects.by_id[entry.subject]
        size = entry.size
        block.live -= 1
        block.live_bytes -= entry.length
        block.dead_bytes += entry.length
        entry.offset = 0
        if seq > self.loss_floor and seq == seqs_last(&subject.seqs):
            self.loss_floor = seq
        seqs_remove(&subject.seqs, seq)
        count_message(self.subjects, subject.id, -1)
        if subject.seqs.count == 0:
            self.subjects.release(subject)
        self.msgs -= 1
        self.total_size -= size
        if seq == self.first_seq:
            self.move_first()
        if block.sealed and not self.records_removals:
            self.reclaim(block)
        return size

    cdef void reclaim(self, Block* block) noexcept nogil:
        """Gives memory of removed messages back, in a log that is nowhere else."""
        cdef char* image
        cdef uint32_t i
        cdef size_t used = 0
        if block.live == 0:
            i = self.block_first
            while self.blocks[i] != block:
                i += 1
            self.forget_block(i)
            return
        if 2 * block.live_bytes > block.used:
            return
        image = <char*>xalloc(block.live_bytes + ALIGNED_START)
        used = ALIGNED_START            # offset 0 means that nothing lives there
        for i in range(block.nentries):
            if block.entries[i].offset:
                memcpy(image + used, block.image + block.entries[i].offset,
                       block.entries[i].length)
                block.entries[i].offset = <uint32_t>used
                used += block.entries[i].length
        free(block.image)
        block.image = image
        block.image_cap = block.used = used

    cdef void move_first(self) noexcept nogil:
        cdef uint64_t following = self.live_from(self.first_seq)
        self.first_seq = following if following else self.last_seq + 1

    def truncate(self, uint64_t seq, int64_t ts_ns) -> list:
        """Forgets that there was anything behind `seq`; what was live there must be gone already.

        Answers the numbers of blocks that are forgotten with it.
        """
        cdef Block* block
        cdef uint64_t last
        gone = []
        while self.block_last > self.block_first:
            block = self.blocks[self.block_last - 1]
            if block.first_seq <= seq:
                break
            gone.append(block.number)
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
        if self.records_removals:
            # A block that starts where others have been takes back what they say from there on.
            self.new_block(seq + 1, ts_ns)
            self.note_range(SKIP, seq + 1, seq, self.last_ts_ns)     # no sequences, but the time
        return gone

    cdef Block* adopt_block(self, uint64_t number, uint64_t first_seq):
        """A block found on disk, still without entries."""
        cdef Block* block
        cdef uint64_t unused = self.next_number
        self.next_number = number
        block = self.new_block(first_seq, 0)
        self.next_number = max(unused, number + 1)
        free(block.image)
        block.image = NULL
        block.image_cap = 0
        return block

    cdef uint64_t live_before(self, uint64_t seq) noexcept nogil:
        """The last live sequence at or before `seq`; 0 if there is none."""
        cdef uint32_t i
        cdef uint64_t at
        cdef Block* block
        for i in range(self.index_at(seq), self.block_first, -1):
            block = self.blocks[i - 1]
            if block.live == 0:
                continue
            at = min(seq - block.first_seq + 1, <uint64_t>block.nentries)
            while at > 0:
                at -= 1
                if block.entries[at].offset:
                    return block.first_seq + at
        return 0

    def restart_at(self, uint64_t seq) -> None:
        """An empty log goes on at `seq`, as if everything before had been there and gone."""
        if self.msgs or seq <= self.last_seq:
            raise ValueError("only an empty log can go on further ahead")
        if seq > self.last_seq + 1:
            self.note_range(SKIP, self.last_seq + 1, seq - 1, self.last_ts_ns)
        self.last_seq = seq - 1
        self.first_seq = seq

    def drop_dead_blocks(self, int64_t ts_ns) -> list:
        """Forgets the oldest blocks, as far as they hold nothing; answers their numbers.

        Only the oldest: a later block may hold records about sequences of earlier ones.
        """
        gone = []
        while self.has_dead_front():
            gone.append(self.blocks[self.block_first].number)
            self.forget_block(self.block_first)
        if gone:
            self.note_range(FLOOR, self.oldest_seq(), self.oldest_seq(), ts_ns)
        return gone

    cdef bint has_dead_front(self) noexcept nogil:
        """Whether the oldest block may go: if damaged, only when limits have gone beyond it."""
        cdef Block** oldest = self.blocks + self.block_first
        return (self.block_first + 1 < self.block_last and oldest[0].live == 0
                and not (oldest[0].damaged and oldest[1].live))

    def oldest_seq(self) -> int:
        """The first sequence any block could hold."""
        if self.block_first == self.block_last:
            return self.last_seq + 1
        return self.blocks[self.block_first].first_seq

    cdef void forget_block(self, uint32_t index) noexcept nogil:
        cdef Block* block = self.blocks[index]
        free(block.image)
        free(block.entries)
        free(block)
        if index == self.block_first:
            self.block_first += 1
        else:
            memmove(self.blocks + index, self.blocks + index + 1,
                    (self.block_last - index - 1) * sizeof(Block*))
            self.block_last -= 1
