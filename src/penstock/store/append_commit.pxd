"""C declarations of `append_commit`."""

from libc.stdint cimport uint64_t

from penstock.store.index.block_list cimport Block
from penstock.store.index.record_log cimport RecordLog


cpdef enum CommitPlan:        # what the next commit of a store has to do
    NOTHING = 0
    APPEND = 1                # write the end of the open block to its file; sync it, unless lazy
    FULL = 2                  # anything else: other files, removals, reserved sequences

cdef class OpenBlock:
    cdef public object file
    cdef public object frames     # None: the file holds the image unchanged
    cdef public size_t written
    cdef public size_t allocated  # file size, including preallocated zeros


cdef class Appender:
    cdef RecordLog log
    cdef object disk
    cdef object descriptors       # lends descriptors; None: use calls of the disk
    cdef readonly bint syncs
    cdef OpenBlock open_block
    cdef uint64_t number          # the block whose file is open here; 0: closed
    cdef bint wrote               # wrote bytes that are not synced
    cdef public bint is_direct    # the file system accepts O_DIRECT, as far as is known
    cdef public uint64_t durable_seq
    cdef public uint64_t durable_block
    cdef public uint64_t durable_place
    cdef public uint64_t reserved

    cdef CommitPlan next_plan(self) noexcept
    cdef bint append(self) except -1
    cdef bint allocate(self, size_t end) except -1
    cdef bint put(self, Block* block) except -1
    cdef bint put_in_c(self, Block* block) except -1
    cdef bint write_pages(self, int fd, Block* block) noexcept nogil
    cdef uint64_t reserve(self) noexcept nogil
    cdef bint lacks(self, uint64_t wanted) noexcept nogil
