"""The plan of a commit, and in C the executor of the usual one, which only appends to a file.

An `Appender` holds how far a store is durable. The store opens it when commits only have to append,
and closes it before any other work on the files, so the appender may use the file while it is open.
`plan` is computed here alone. A commit that is APPEND runs on the owner's thread (`append`), or as
`SyncWork` on another one; a FULL one is always a `SyncWork`. `append` performs the whole commit, or
has no effect; the caller then falls back to `SyncWork`, which rewrites the same bytes, and a sync
that failed fails again there.

Runs on the owner's thread, creates no object per message and copies no data. Large synced writes
use `O_DIRECT` and skip the page cache too: the publisher waits for the disk, so the copy is waste.
"""

from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset
from posix.types cimport off_t

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.record_codec cimport RANGE_BYTES

from penstock.store.errors import DiskFull, StoreError

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <fcntl.h>
    #ifndef O_DIRECT
    #define O_DIRECT 0  /* then everything is written as usual */
    #endif
    """
    int O_DIRECT
    int F_GETFL
    int F_SETFL
    int fcntl(int fd, int what, ...) nogil

cdef extern from "unistd.h" nogil:
    ssize_t pwrite(int fd, const void* data, size_t n, off_t at)
    int fdatasync(int fd)

cdef enum:
    SMALL_BYTES = 65536
    LEAST_RESERVED = 1024
    MOST_RESERVED = 1048576
    PAGE_BYTES = 4096         # direct writes begin and end at multiples of it
    AHEAD_BYTES = 262144      # zeros written ahead of small appends

SMALL_WRITE_BYTES = SMALL_BYTES
RESERVE_MIN = LEAST_RESERVED
RESERVE_MAX = MOST_RESERVED
PREALLOCATE_BYTES = AHEAD_BYTES     # a sync that does not grow the file is faster


cdef class OpenBlock:
    """A block file open for writing. `allocated`: its size, including preallocated zeros."""

    def __init__(self, file, size_t written=0, size_t allocated=0, frames=None) -> None:
        self.file = file
        self.written = written
        self.allocated = allocated
        self.frames = frames


def preallocate(disk, OpenBlock block not None, size_t end, size_t block_bytes) -> None:
    """Extend the file by zeros, so that it has `end` bytes and space for the next appends."""
    cdef size_t size = min(end + AHEAD_BYTES, max(end, block_bytes))
    try:
        disk.preallocate(block.file, size)
    except DiskFull:
        size = end          # the write itself may still succeed
    block.allocated = size


cdef class Appender:
    """How far a store is durable, and the fast commit path that advances it."""

    def __init__(self, *, RecordLog log not None, disk, bint syncs) -> None:
        """With `syncs`, every append is synced."""
        self.log = log
        self.disk = disk
        self.descriptors = disk.descriptors
        self.syncs = syncs
        self.is_direct = O_DIRECT != 0

    def open(self, uint64_t number, OpenBlock block not None) -> None:
        """Open the fast path: until `close`, commits only append to this file."""
        self.number = number
        self.open_block = block

    def close(self) -> None:
        """Close the fast path: the store does other work on the files."""
        self.number = 0
        self.open_block = None
        self.wrote = False

    @property
    def unsynced(self) -> set:
        """The block with unsynced writes since `open`, as a set; empty if there is none."""
        return {self.number} if self.wrote else set()

    def set_durable(self, uint64_t seq) -> None:
        """Record that everything up to a sequence is durable, and update the visible sequence."""
        self.durable_seq = seq
        self.log.visible_max = seq if self.syncs else self.reserved

    @property
    def is_short(self) -> bool:
        """Whether fewer sequences are reserved than a lazy store should have."""
        return self.lacks(self.reserve())

    @property
    def is_half_used(self) -> bool:
        """Whether a lazy store has used half of its reserved sequences."""
        return self.lacks(self.reserve() // 2)

    cdef bint lacks(self, uint64_t wanted) noexcept nogil:
        """Return whether fewer than `wanted` sequences are reserved and more can be reserved."""
        return (self.reserved < SEQ_MAX
                and <int64_t>(self.reserved - self.log.last_seq) < <int64_t>wanted)

    def num_reserved(self) -> int:
        """Return how many sequences a lazy store reserves: twice what it used, within bounds."""
        return self.reserve()

    cdef uint64_t reserve(self) noexcept nogil:
        cdef uint64_t wanted = 2 * (self.log.last_seq - self.durable_seq)
        return min(max(wanted, <uint64_t>LEAST_RESERVED), <uint64_t>MOST_RESERVED)

    # -- the plan

    @property
    def plan(self) -> CommitPlan:
        """What the commit of this turn has to do."""
        return CommitPlan(self.next_plan())

    cdef CommitPlan next_plan(self) noexcept:
        cdef Block* block = self.log.active()
        if (self.number == 0 or block == NULL or block.number != self.number
                or block.image == NULL):
            return FULL
        if block.written == block.used:
            return NOTHING
        if self.log.has_dead_front() or (not self.syncs and self.lacks(self.reserve() // 2)):
            return FULL
        return APPEND

    @property
    def unwritten_bytes(self) -> int:
        """How many bytes of the newest block its file lacks."""
        cdef Block* block = self.log.active()
        return 0 if block == NULL else block.used - block.written

    # -- the executor on the owner's thread

    def commit(self) -> bool:
        """Write the bytes that the file lacks, and sync if configured; return False if not done."""
        return self.append()

    cdef bint append(self) except -1:
        cdef CommitPlan plan = self.next_plan()
        cdef Block* block = self.log.active()
        cdef size_t end
        if plan != APPEND:
            return plan == NOTHING
        end = block.used + RANGE_BYTES * (2 if self.log.is_loss_unsaid else 1)   # mark, loss record
        if end - block.written <= SMALL_BYTES and not self.allocate(end):
            return False
        self.log.note_loss()
        if self.syncs:
            self.log.note_mark(self.durable_block, self.durable_place, self.durable_seq)
        if not (self.put(block) if self.descriptors is None else self.put_in_c(block)):
            return False
        block.written = self.open_block.written = block.used
        self.log.losses_kept = self.log.losses_said
        if not self.syncs:
            self.wrote = True
            return True
        self.durable_block = block.number
        self.durable_place = block.used
        self.durable_seq = self.log.visible_max = self.log.last_seq
        return True

    cdef bint allocate(self, size_t end) except -1:
        """Write zeros ahead of a small append; return False if the disk failed."""
        if end > self.open_block.allocated:
            try:
                preallocate(self.disk, self.open_block, end, self.log.block_bytes)
            except StoreError:
                return False
        return True

    cdef bint put(self, Block* block) except -1:
        """Write and sync through calls of the disk."""
        try:
            self.disk.pwrite(self.open_block.file, block.image[block.written:block.used],
                             block.written)
            if self.syncs:
                self.disk.fdatasync(self.open_block.file)
        except StoreError:
            return False
        return True

    cdef bint put_in_c(self, Block* block) except -1:
        cdef int fd, failed = 0
        cdef bint is_written
        file = self.open_block.file
        lent = self.descriptors.acquire(file)
        if lent is None:
            return False
        fd = lent
        if file.failed:
            self.descriptors.release(file, fd)
            return False
        if not self.syncs and not file.is_unsynced:
            self.descriptors.changed(file, fd)
        with nogil:
            is_written = (self.write_pages(fd, block)
                          or write_all(fd, block.image, block.written, block.used))
            if is_written and self.syncs:
                failed = fdatasync(fd)
        if failed:
            self.descriptors.failed_sync(file, fd)
        self.descriptors.release(file, fd)
        return is_written and not failed

    cdef bint write_pages(self, int fd, Block* block) noexcept nogil:
        """Write a large synced append directly from the image; return False if not done.

        Writes whole pages: the bytes of the first page that the file already has are written
        again unchanged, and zeros fill the last page, like preallocated space.
        """
        cdef size_t start = block.written & ~<size_t>(PAGE_BYTES - 1)
        cdef size_t end = (block.used + PAGE_BYTES - 1) & ~<size_t>(PAGE_BYTES - 1)
        cdef int flags
        cdef bint is_written
        if (not self.is_direct or not self.syncs or block.used - block.written <= SMALL_BYTES
                or <size_t>block.image & (PAGE_BYTES - 1) or end > block.image_cap):
            return False
        flags = fcntl(fd, F_GETFL)
        if flags == -1 or fcntl(fd, F_SETFL, flags | O_DIRECT) != 0:
            self.is_direct = False
            return False
        memset(block.image + block.used, 0, end - block.used)
        is_written = write_all(fd, block.image, start, end)
        if not is_written and errno == EINVAL:
            self.is_direct = False      # the file system has other alignment rules
        fcntl(fd, F_SETFL, flags)       # only this thread holds the descriptor now
        if is_written:
            self.open_block.allocated = max(self.open_block.allocated, end)
        return is_written


cdef bint write_all(int fd, const char* image, size_t start, size_t end) noexcept nogil:
    """Write a part of an image at its own offset; return False if not all of it was written."""
    cdef ssize_t n
    while start < end:
        n = pwrite(fd, image + start, end - start, start)
        if n > 0:
            start += n
        elif n == 0 or errno != EINTR:
            return False
    return True
