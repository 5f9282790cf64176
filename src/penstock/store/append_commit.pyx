"""The commit there is most often, in C: records behind others in a file that is open, no more.

An `Appender` holds how far a store is durable. It is opened by its store when a commit would have
nothing to do but to append, and closed before anything else is done to the files; so what it
finds open it may use. `append` either does all that a commit does, or nothing that counts, and the
ordinary way is gone: what it wrote is written again there, and a sync that failed fails again.

No thread but the owner's, no object for a message, no copy of what is written; not even the
system's, where much is written and synced (`O_DIRECT`): for who waits until the disk has it, a copy
in the system's memory is nothing but work.
"""

from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memset
from posix.types cimport off_t

from penstock.base.sequences cimport SEQ_MAX
from penstock.records.record_codec cimport RANGE_BYTES

from penstock.store.errors import StoreError

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
    PAGE_BYTES = 4096         # what is written directly begins and ends at multiples of it

SMALL_WRITE_BYTES = SMALL_BYTES
RESERVE_MIN = LEAST_RESERVED
RESERVE_MAX = MOST_RESERVED


cdef class OpenBlock:
    """A block file that is written to. `allocated`: its size, zeros included."""

    def __init__(self, file, size_t written=0, size_t allocated=0, frames=None) -> None:
        self.file = file
        self.written = written
        self.allocated = allocated
        self.frames = frames


cdef class Appender:
    """How far a store is durable, and the short way to get it further."""

    def __init__(self, *, RecordLog log not None, disk, bint syncs) -> None:
        """With `syncs` what is appended is synced, too."""
        self.log = log
        self.disk = disk
        self.lender = disk.lender
        self.syncs = syncs
        self.is_direct = O_DIRECT != 0

    def open(self, uint64_t number, OpenBlock block not None) -> None:
        """Nothing is to be done but appending to this file, until it is closed."""
        self.number = number
        self.open_block = block

    def close(self) -> None:
        """Others are at work."""
        self.number = 0
        self.open_block = None
        self.wrote = False

    @property
    def unsynced(self) -> set:
        """The block that was written to since it was opened and not synced, if there is one."""
        return {self.number} if self.wrote else set()

    def set_durable(self, uint64_t seq) -> None:
        """Everything up to a sequence is durable; what may be seen follows from it."""
        self.durable_seq = seq
        self.log.visible_max = seq if self.syncs else self.reserved

    @property
    def is_short(self) -> bool:
        """Whether fewer sequences are reserved than a lazy store should have."""
        return self.lacks(self.reserve())

    @property
    def is_half_used(self) -> bool:
        """Whether a lazy store has used half of what is reserved."""
        return self.lacks(self.reserve() // 2)

    cdef bint lacks(self, uint64_t wanted) noexcept nogil:
        """Whether fewer than so many sequences are reserved, and there are more to reserve."""
        return (self.reserved < SEQ_MAX
                and <int64_t>(self.reserved - self.log.last_seq) < <int64_t>wanted)

    def num_reserved(self) -> int:
        """How many sequences a lazy store reserves: twice what it used, in bounds."""
        return self.reserve()

    cdef uint64_t reserve(self) noexcept nogil:
        cdef uint64_t wanted = 2 * (self.log.last_seq - self.durable_seq)
        return min(max(wanted, <uint64_t>LEAST_RESERVED), <uint64_t>MOST_RESERVED)

    def commit(self) -> bool:
        """Writes what the file lacks, and syncs it if it is to be synced; False: it did not."""
        return self.append()

    cdef bint append(self) except -1:
        cdef Block* block = self.log.active()
        cdef size_t end
        if (self.number == 0 or block == NULL or block.number != self.number
                or block.image == NULL):
            return False
        if block.written == block.used:
            return True
        if self.log.has_dead_front() or (not self.syncs and self.is_half_used):
            return False
        end = block.used + RANGE_BYTES * (2 if self.log.is_loss_unsaid else 1)   # a mark, a loss
        if end > self.open_block.allocated and end - block.written <= SMALL_BYTES:
            return False        # space has to be made first
        self.log.note_loss()
        if self.syncs:
            self.log.note_mark(self.durable_block, self.durable_place, self.durable_seq)
        if not (self.put(block) if self.lender is None else self.put_in_c(block)):
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

    cdef bint put(self, Block* block) except -1:
        """By calls of the disk."""
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
        lent = self.lender.take(file)
        if lent is None:
            return False
        fd = lent
        if file.failed:
            self.lender.give(file, fd)
            return False
        if not self.syncs and not file.is_unsynced:
            self.lender.changed(file, fd)
        with nogil:
            is_written = (self.write_pages(fd, block)
                          or write_all(fd, block.image, block.written, block.used))
            if is_written and self.syncs:
                failed = fdatasync(fd)
        if failed:
            self.lender.failed_sync(file, fd)
        self.lender.give(file, fd)
        return is_written and not failed

    cdef bint write_pages(self, int fd, Block* block) noexcept nogil:
        """Writes much that is to be synced straight from the image; False: it did not.

        Whole pages: what the file has of the first one is written again as it is, and behind what
        ends in the last one come zeros, space like any other that was not written to.
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
            self.is_direct = False      # a file system that wants something else
        fcntl(fd, F_SETFL, flags)       # nobody else has this descriptor meanwhile
        if is_written:
            self.open_block.allocated = max(self.open_block.allocated, end)
        return is_written


cdef bint write_all(int fd, const char* image, size_t start, size_t end) noexcept nogil:
    """Writes a part of an image to where it belongs; False: not all of it."""
    cdef ssize_t n
    while start < end:
        n = pwrite(fd, image + start, end - start, start)
        if n > 0:
            start += n
        elif n == 0 or errno != EINTR:
            return False
    return True
