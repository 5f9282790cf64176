"""The blocks of a log, oldest first: images of records, and an entry for every sequence.

A block is a header followed by records, in one piece of memory: its image. Only the newest block is
open; a new record goes to its end or into a new block. A sealed block may drop its image and load
it again. Its entries stay in memory: for each sequence the record's place and length, the
timestamp, the subject and the size that limits count.

Subclasses define the meaning of records, which messages exist, and the initial state. One owner
uses a list, on one thread.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from penstock.records.record_codec cimport make_keys
from penstock.store.index.image_memory cimport first_image, grow_image
from penstock.subjects.trie_nodes cimport xrealloc, xzalloc

from penstock.store.format.block_header import block_header


cdef class BlockList:
    def __dealloc__(self):
        while self.block_last > self.block_first:
            self.forget_block(self.block_last - 1)
        free(self.blocks)
        free(self.spare.image)

    # -- the newest block

    cdef Block* active(self) noexcept nogil:
        if self.block_last == self.block_first or self.blocks[self.block_last - 1].sealed:
            return NULL
        return self.blocks[self.block_last - 1]

    def active_number(self) -> int:
        """Return the number of the open block; 0 if there is none."""
        cdef Block* block = self.active()
        return 0 if block == NULL else block.number

    def end(self) -> tuple:
        """Return (number, place) after the last record; (0, 0) if there is no block."""
        cdef Block* block
        if self.block_first == self.block_last:
            return 0, 0
        block = self.blocks[self.block_last - 1]
        return block.number, block.used

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

    cdef Block* adopt_block(self, uint64_t number, uint64_t first_seq):
        """Add a block found on disk, still without entries."""
        cdef Block* block
        cdef uint64_t unused = self.next_number
        self.next_number = number
        block = self.new_block(first_seq, 0)
        self.next_number = max(unused, number + 1)
        free(block.image)
        block.image = NULL
        block.image_cap = 0
        return block

    cdef char* room(self, size_t n, uint64_t seq, int64_t ts):
        """Return space for a record of `n` bytes in the active block, or in a new one."""
        cdef Block* block = self.active()
        if (block == NULL or (block.used + n > self.block_bytes and block.nentries)
                or seq > block.first_seq + block.nentries + GAP_MAX
                or block.used > USED_BYTES_MAX or block.nentries > ENTRIES_MAX - GAP_MAX - 1):
            block = self.new_block(seq, ts)
        if block.used + n > block.image_cap:
            block.image = grow_image(block.image, block.used, block.used + n, self.block_bytes,
                                     &block.image_cap, &self.spare.image, &self.spare.cap)
        return block.image + block.used

    cdef void seal(self, Block* block) noexcept nogil:
        """Seal a block: it receives no more appends."""
        if block.sealed:
            return
        block.sealed = True
        block.last_seq = self.last_seq
        block.last_ts = self.last_ts_ns
        if block.nentries and block.nentries < block.entries_cap:
            block.entries = <Entry*>xrealloc(block.entries, block.nentries * sizeof(Entry))
            block.entries_cap = block.nentries

    def seal_active(self) -> None:
        """Seal the open block, so that the next append starts a new one."""
        cdef Block* block = self.active()
        if block != NULL:
            self.seal(block)

    # -- finding a sequence

    cdef uint32_t index_at(self, uint64_t seq) noexcept nogil:
        """Return the index after the last block that starts at or before `seq`, or block_first."""
        cdef uint32_t low = self.block_first, high = self.block_last, middle
        if low < high and self.blocks[high - 1].first_seq <= seq:
            return high
        if high - low > 1 and self.blocks[low].first_seq <= seq < self.blocks[low + 1].first_seq:
            return low + 1      # limits remove from the oldest block: skip the search
        while low < high:
            middle = (low + high) >> 1
            if self.blocks[middle].first_seq <= seq:
                low = middle + 1
            else:
                high = middle
        return low

    cdef Block* block_at(self, uint64_t seq) noexcept nogil:
        """Return the last block that starts at or before `seq`; NULL if all start later."""
        cdef uint32_t i = self.index_at(seq)
        return self.blocks[i - 1] if i > self.block_first else NULL

    cdef Entry* entry_at(self, uint64_t seq, Block** where) noexcept nogil:
        """Return the live entry of a sequence, or NULL."""
        cdef Block* block = self.block_at(seq)
        if block == NULL or seq - block.first_seq >= block.nentries:
            return NULL
        where[0] = block
        if block.entries[seq - block.first_seq].offset == 0:
            return NULL
        return &block.entries[seq - block.first_seq]

    cdef uint64_t live_from(self, uint64_t start) noexcept nogil:
        """Return the first live sequence at or after `start`; 0 if there is none."""
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

    cdef uint64_t live_before(self, uint64_t seq) noexcept nogil:
        """Return the last live sequence at or before `seq`; 0 if there is none."""
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

    # -- the oldest block

    def oldest_seq(self) -> int:
        """Return the first sequence that any block can hold."""
        if self.block_first == self.block_last:
            return self.last_seq + 1
        return self.blocks[self.block_first].first_seq

    cdef bint has_dead_front(self) noexcept nogil:
        """Return whether the oldest block can be dropped; a damaged one only if the next block
        has no live message either."""
        cdef Block** oldest = self.blocks + self.block_first
        return (self.block_first + 1 < self.block_last and oldest[0].live == 0
                and not (oldest[0].damaged and oldest[1].live))

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
