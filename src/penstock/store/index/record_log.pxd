"""C declarations of `record_log`."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.store.index.block_list cimport Block, BlockList, Entry
from penstock.store.index.subject_index cimport Subject, SubjectIndex

cdef inline str as_text(const char* p, size_t n):
    return p[:n].decode("utf-8", "surrogateescape")

cdef inline bytes as_raw(str text):
    return text.encode("utf-8", "surrogateescape")

cdef uint64_t grown(uint64_t lineage, uint64_t seq, uint64_t ts, uint32_t length) noexcept nogil

cdef class RecordLog(BlockList):
    cdef readonly SubjectIndex subjects
    cdef readonly bint records_removals
    cdef bint counts_as_file
    cdef public uint64_t mark_block      # position of the last mark
    cdef public uint64_t mark_place
    cdef readonly uint64_t msgs
    cdef readonly uint64_t total_size
    cdef readonly uint64_t first_seq
    cdef public uint64_t visible_max     # reads find no message above it
    cdef list retired                    # replaced subject indexes, to be freed
    cdef readonly dict loose             # (block, sequence): (layout, record), of cold blocks
    cdef uint64_t looked_at              # the last sequence read from a cold block
    cdef public uint64_t loss_floor      # highest sequence removed as the newest of its subject
    cdef public uint64_t losses          # messages removed as the newest of their subject, by
                                         # request or while an older one stayed
    cdef public uint64_t losses_said     # count in the last loss record of the log
    cdef public uint64_t losses_kept     # count in the last one written, or synced if syncing
    cdef public bint is_requested        # removals now are by request, not by a limit
    cdef public bint is_loss_unsaid      # something was removed since the last loss record

    cdef uint64_t put(self, const char* subject, size_t subject_len, const char* header,
                      size_t header_len, const char* payload, size_t payload_len, int64_t ts,
                      uint64_t seq, int64_t deadline_ns)
    cdef void add_entry(self, Block* block, uint64_t seq, int64_t ts, uint32_t offset,
                        uint32_t length, Subject* subject, uint32_t size) noexcept nogil
    cdef uint32_t size_of(self, size_t subject_len, size_t header_len,
                          size_t payload_len) noexcept nogil
    cdef list cut_back(self, uint64_t seq)
    cdef void renew_subjects(self)
    cdef void move_first(self) noexcept nogil
    cpdef object note_range(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns)
    cdef void note_in_place(self, int kind, uint64_t first, uint64_t last, int64_t ts_ns)
    cpdef object note_mark(self, uint64_t number, uint64_t place, uint64_t durable_seq)
    cpdef object note_loss(self)
    cdef object read(self, Block* block, Entry* entry, uint64_t seq)
    cdef object cold(self, Block* block, uint64_t seq)
