"""Staged atomic batches: the messages of batches that are not yet committed.

Most messages of a batch have no stream keys except batch id and number. The fast lane or
`AtomicBatches.plan` packs these one after another, in C. Any other message becomes an item for the
checks, and so do all that follow it in the batch. So a batch is its packed messages followed by its
items. A message is packed only if `AtomicBatches.plan` would stage it without an error; that method
handles everything else, including every rejection.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from penstock.jetstream.streams.lanes.header_lines cimport Line, first_line, is_number, is_text, read_line

from typing import NamedTuple

cdef enum:
    ID_BYTES_MAX = 64

BATCH_ID_BYTES_MAX = ID_BYTES_MAX


class Staged(NamedTuple):
    """A message of a batch that must be checked, with its parsed header."""

    subject: str
    header: bytes
    payload: bytes
    fields: dict


cdef class InFlight:
    """How many batches are in flight in all streams that share this counter."""


cdef class StagedBatch:
    """One staged batch."""

    def __init__(self, bytes id not None) -> None:
        self.id = id
        self.items = []
        self.packer = Packer()

    def take_packed(self) -> bytes:
        """Return the packed messages and remove them from the batch."""
        packed, self.packer = self.packer.packed(), Packer()
        return packed


cdef bint read_member(Packed* one, Text* id, Text* number) noexcept nogil:
    """Parse batch id and number; False if either is missing or the header has another stream
    key."""
    cdef const char* end = one.header + one.header_len
    cdef const char* at = first_line(one.header, one.header_len)
    cdef Line line
    id.n = number.n = 0
    while at != NULL and at < end:
        at = read_line(at, end, &line)
        if at == NULL:
            return False
        if not line.is_special:
            continue
        if id.n == 0 and is_text(&line.key, b"Nats-Batch-Id", 13):
            id[0] = line.value
        elif number.n == 0 and is_text(&line.key, b"Nats-Batch-Sequence", 19):
            number[0] = line.value
        else:
            return False
    return at != NULL and id.n > 0 and number.n > 0


cdef class StagedBatches:
    """The staged batches of one stream."""

    def __init__(self, limits, InFlight in_flight not None) -> None:
        self.batches = {}
        self.in_flight = in_flight
        self.msgs_max = limits.msgs_max
        self.atomic_max = limits.atomic_max
        self.atomic_total_max = limits.atomic_total_max
        self.idle_ns_max = limits.idle_ns_max

    cdef bint take(self, Packed* one, int64_t now_ns) noexcept:
        """Pack a message if it is plain and the next of its batch; otherwise return False."""
        cdef Text id, number
        cdef StagedBatch batch
        if not self.is_open or not read_member(one, &id, &number):
            return False
        batch = self.found(&id, &number, now_ns)
        if batch is None:
            return False
        batch.packer.put(one)
        batch.last += 1
        batch.deadline_ns = now_ns + self.idle_ns_max
        return True

    cdef StagedBatch found(self, Text* id, Text* number, int64_t now_ns):
        """Return the batch whose next message this is, if it may be packed; otherwise None."""
        cdef StagedBatch batch = self.recent
        cdef bytes key
        if batch is None or not is_text(id, PyBytes_AS_STRING(batch.id), len(batch.id)):
            key = PyBytes_FromStringAndSize(id.at, id.n)
            batch = self.batches.get(key)
            if batch is None and is_number(number, 1) and self.may_start(len(key)):
                batch = self.started(key, now_ns)
            self.recent = batch
        if batch is None or batch.items or batch.last >= self.msgs_max:
            return None
        return batch if is_number(number, batch.last + 1) else None

    def may_start(self, size_t id_bytes) -> bool:
        """Return whether there is room for one more batch and its id is not too long."""
        return (id_bytes <= ID_BYTES_MAX and len(self.batches) < self.atomic_max
                and self.in_flight.atomic < <int>self.atomic_total_max and self.msgs_max > 0)

    cdef StagedBatch started(self, bytes id, int64_t now_ns):
        cdef StagedBatch batch = StagedBatch(id)
        self.batches[id] = batch
        batch.deadline_ns = now_ns + self.idle_ns_max
        self.wake_ns = self.wake_ns or batch.deadline_ns
        self.in_flight.atomic += 1
        return batch

    def start(self, bytes id not None, int64_t now_ns) -> StagedBatch:
        """Start a batch."""
        return self.started(id, now_ns)

    def add(self, str subject not None, bytes header not None, bytes payload not None,
            int64_t now_ns) -> bool:
        """Pack a message that the lane did not take; return whether it was packed."""
        cdef bytes raw
        cdef Packed one
        if not self.is_open:
            return False
        raw = subject.encode("utf-8", "surrogateescape")
        one.subject, one.subject_len = PyBytes_AS_STRING(raw), PyBytes_GET_SIZE(raw)
        one.header, one.header_len = PyBytes_AS_STRING(header), PyBytes_GET_SIZE(header)
        one.payload, one.payload_len = PyBytes_AS_STRING(payload), PyBytes_GET_SIZE(payload)
        return self.take(&one, now_ns)

    def drop(self, bytes id not None) -> None:
        """Remove a batch that was committed or abandoned."""
        del self.batches[id]
        self.recent = None
        self.in_flight.atomic -= 1
        if not self.batches:
            self.wake_ns = 0
