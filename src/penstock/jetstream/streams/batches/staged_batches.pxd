"""C interface of staged atomic batches."""

from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.store.index.message_pack cimport Packed, Packer
from penstock.jetstream.streams.lanes.header_lines cimport Text


cdef class InFlight:
    cdef public int atomic
    cdef public int fast


cdef class StagedBatch:
    cdef readonly bytes id
    cdef readonly list items      # after the packed messages
    cdef readonly Packer packer
    cdef public uint64_t last
    cdef public int64_t deadline_ns


cdef class StagedBatches:
    cdef readonly dict batches
    cdef StagedBatch recent         # the batch of the last message
    cdef readonly InFlight in_flight
    cdef uint32_t msgs_max
    cdef uint32_t atomic_max
    cdef uint32_t atomic_total_max
    cdef int64_t idle_ns_max
    cdef public bint is_open      # plain messages may be packed
    cdef public int64_t wake_ns   # not later than the earliest deadline; 0 if there is no batch

    cdef bint take(self, Packed* one, int64_t now_ns) noexcept
    cdef StagedBatch found(self, Text* id, Text* number, int64_t now_ns)
    cdef StagedBatch started(self, bytes id, int64_t now_ns)
