"""C surface of the blocks of a log: images of records, and the entries over them."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.records.record_codec cimport Keys
from penstock.store.index.image_memory cimport SpareImage

cdef enum:
    IMAGE_BYTES_MIN = 65536
    GAP_MAX = 4096              # empty entries a block may hold for a gap; a longer one ends it
    ENTRIES_MAX = 1073741824    # of a block, whatever its file says
    USED_BYTES_MAX = 2147483647 # of an image, the last record aside: offsets have 32 bits

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

cdef class BlockList:
    cdef readonly uint64_t incarnation
    cdef readonly bytes meta
    cdef readonly int form        # of the files of new blocks
    cdef size_t block_bytes
    cdef Block** blocks
    cdef uint32_t block_first     # live: blocks[block_first : block_last]
    cdef uint32_t block_last
    cdef uint32_t blocks_cap
    cdef SpareImage spare         # of a block whose image was dropped
    cdef public uint64_t next_number
    cdef readonly uint64_t last_seq      # given out so far
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
