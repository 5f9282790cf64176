"""C declarations of `block_list`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.records.record_codec cimport Keys
from penstock.store.index.image_memory cimport SpareImage

cdef enum:
    IMAGE_BYTES_MIN = 65536
    GAP_MAX = 4096              # empty entries a block may hold for a gap; a longer gap ends it
    ENTRIES_MAX = 1073741824    # limit per block, whatever its file claims
    USED_BYTES_MAX = 2147483647 # limit of an image before its last record: offsets have 32 bits

cdef struct Entry:
    int64_t ts
    uint32_t offset       # of its record in the block's image; 0: no live message
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
    uint64_t dead_bytes   # of records of removed messages
    char* image           # NULL: cold
    size_t image_cap
    size_t head           # bytes of the header
    size_t used           # bytes of the image in use
    size_t written        # bytes of it that the file has
    uint64_t lineage      # hash of everything appended; the next block contains it
    uint64_t previous     # lineage of the block before
    uint32_t layout       # increases when its records move
    uint32_t looks        # single-record reads from the file since it became cold
    bint sealed
    bint footed           # the file ends with a valid footer
    bint damaged          # something in it could not be read: it is left unchanged
    bint verified         # every body was checked, or written by this process
    Keys keys

cdef class BlockList:
    cdef readonly uint64_t incarnation
    cdef readonly bytes meta
    cdef readonly int form        # file form of new blocks
    cdef size_t block_bytes
    cdef Block** blocks
    cdef uint32_t block_first     # in use: blocks[block_first : block_last]
    cdef uint32_t block_last
    cdef uint32_t blocks_cap
    cdef SpareImage spare         # image memory that another block dropped
    cdef public uint64_t next_number
    cdef readonly uint64_t last_seq      # last sequence assigned
    cdef readonly int64_t last_ts_ns

    cdef Block* active(self) noexcept nogil
    cdef Block* new_block(self, uint64_t first_seq, int64_t created_ns)
    cdef Block* adopt_block(self, uint64_t number, uint64_t first_seq)
    cdef char* room(self, size_t n, uint64_t seq, int64_t ts)
    cdef void seal(self, Block* block) noexcept nogil
    cdef uint32_t index_at(self, uint64_t seq) noexcept nogil
    cdef Block* block_at(self, uint64_t seq) noexcept nogil
    cdef Entry* entry_at(self, uint64_t seq, Block** where) noexcept nogil
    cdef uint64_t live_from(self, uint64_t start) noexcept nogil
    cdef uint64_t live_before(self, uint64_t seq) noexcept nogil
    cdef bint has_dead_front(self) noexcept nogil
    cdef void forget_block(self, uint32_t index) noexcept nogil
