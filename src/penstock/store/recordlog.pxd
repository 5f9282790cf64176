"""C surface of the record log: block images and the index over them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.records.codec cimport Keys, RecordView
from penstock.store.imagememory cimport SpareImage
from penstock.store.subjectindex cimport Subject, SubjectIndex

cdef struct Entry:
    int64_t ts
    uint32_t offset       # of its record in the block's image; 0: nothing lives here
    uint32_t length       # of its record
    uint32_t subject      # its id in the subject index
    uint32_t size         # as limits count it

cdef struct Block:
    uint64_t number
    uint64_t first_seq    # of entries[0]
    uint64_t last_seq     # of the log when the block was sealed
    int64_t last_ts
    Entry* entries
    uint32_t nentries
    uint32_t entries_cap
    uint32_t live
    uint32_t records
    uint64_t live_bytes   # of live records
    uint64_t dead_bytes   # of records of messages that are gone
    char* image           # NULL: cold
    size_t image_cap
    size_t head           # bytes of the header
    size_t used           # bytes of the image that say something
    size_t written        # bytes of it that the file has
    uint64_t lineage      # of everything it was given; the next block names it
    uint64_t previous     # lineage of the block before
    uint32_t layout       # rises when its records move
    uint32_t looks        # records read from the file one by one since it was cold
    bint sealed
    bint footed           # the file ends with a footer that is true
    bint damaged          # something in it could not be read: it is left as it is
    bint verified         # every body was checked, or written by this process
    Keys keys

cdef uint64_t grown(uint64_t lineage, uint64_t seq, uint64_t ts, uint32_t length) noexcept nogil

cdef class RecordLog:
    cdef readonly uint64_t incarnation
    cdef readonly bytes meta
    cdef readonly SubjectIndex subjects
    cdef size_t block_bytes
    cdef bint records_removals
    cdef bint counts_as_file
    cdef readonly int form        # of the files of new blocks
    cdef public uint64_t mark_block      # of the last mark
    cdef public uint64_t mark_place
    cdef Block** blocks
    cdef uint32_t block_first     # live: blocks[block_first : block_last]
    cdef uint32_t block_last
    cdef uint32_t blocks_cap
    cdef SpareImage spare         # of a block whose image was dropped
    cdef readonly uint64_t msgs
    cdef readonly uint64_t total_size
    cdef readonly uint64_t first_seq
    cdef readonly uint64_t last_seq
    cdef readonly int64_t last_ts_ns
    cdef public uint64_t next_number
    cdef public uint64_t visible_max     # reads find nothing behind it
    cdef readonly dict loose             # (block, sequence): (layout, record), of cold blocks
    cdef uint64_t looked_at              # the last sequence asked for of a cold block
    cdef public uint64_t loss_floor      # the last that went as the newest of its subject
    cdef public bint is_loss_unsaid      # something went since the log last said its loss floor

    cdef Block* active(self) noexcept nogil
    cdef Block* new_block(self, uint64_t first_seq, int64_t created_ns)
    cdef uint32_t index_at(self, uint64_t seq) noexcept nogil
    cdef Block* block_at(self, uint64_t seq) noexcept nogil
    cdef Entry* entry_at(self, uint64_t seq, Block** where) noexcept nogil
    cdef uint64_t put(self, const char* subject, size_t subject_len, const char* header,
                      size_t header_len, const char* payload, size_t payload_len, int64_t ts,
                      uint64_t seq, int64_t deadline_ns)
    cpdef object note_range(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns)
    cdef void note_in_place(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns)
    cpdef object note_mark(self, uint64_t number, uint64_t place, uint64_t durable_seq)
    cpdef object note_loss(self)
    cdef bint has_dead_front(self) noexcept nogil
    cdef char* room(self, size_t n, uint64_t seq, int64_t ts)
    cdef void add_entry(self, Block* block, uint64_t seq, int64_t ts, uint32_t offset,
                        uint32_t length, Subject* subject, uint32_t size) noexcept nogil
    cdef uint32_t size_of(self, size_t subject_len, size_t header_len,
                          size_t payload_len) noexcept nogil
    cdef object cold(self, Block* block, uint64_t seq)
    cdef uint64_t take_out(self, uint64_t seq)
    cdef void move_first(self) noexcept nogil
    cdef uint64_t live_from(self, uint64_t start) noexcept nogil
    cdef uint64_t live_before(self, uint64_t seq) noexcept nogil
    cdef Block* adopt_block(self, uint64_t number, uint64_t first_seq)
    cdef void seal(self, Block* block) noexcept nogil
    cdef object read(self, Block* block, Entry* entry, uint64_t seq)
    cdef void forget_block(self, uint32_t index) noexcept nogil
    cdef void reclaim(self, Block* block) noexcept nogil
