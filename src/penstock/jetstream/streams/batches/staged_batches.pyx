"""Atomic batches under way: what was published of them, until the message that commits.

Most messages of a batch say nothing but their batch and their number. Those are packed one behind
the other, in C, by whichever lane meets them; every other one is an item for the checks, and what
follows it in its batch is, too, so that a batch is its packed messages and then its items. A message
is packed only where `AtomicBatches.plan` would have gathered it without a word; all else, every
refusal included, is left to that.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE

from penstock.jetstream.streams.lanes.header_lines cimport Line, first_line, is_number, is_text, read_line

from typing import NamedTuple

cdef enum:
    ID_BYTES_MAX = 64

BATCH_ID_BYTES_MAX = ID_BYTES_MAX


class Staged(NamedTuple):
    """A message of a batch that is to be judged, its header parsed."""

    subject: str
    header: bytes
    payload: bytes
    fields: dict


cdef class InFlight:
    """How many batches are under way in all streams that share this count."""


cdef class Gathering:
    """A batch under way."""

    def __init__(self, bytes id not None) -> None:
        self.id = id
        self.items = []
        self.packer = Packer()

    def take_packed(self) -> bytes:
        """What was packed, which it holds no more."""
        packed, self.packer = self.packer.packed(), Packer()
        return packed


cdef bint read_member(Packed* one, Text* id, Text* number) noexcept nogil:
    """Whether a header says of which batch the message is and where in it, and nothing else that
    means something to a stream."""
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


cdef class Gatherings:
    """The batches of one stream that are under way."""

    def __init__(self, limits, InFlight in_flight not None) -> None:
        self.batches = {}
        self.in_flight = in_flight
        self.msgs_max = limits.msgs_max
        self.atomic_max = limits.atomic_max
        self.atomic_total_max = limits.atomic_total_max
        self.idle_ns_max = limits.idle_ns_max

    cdef bint take(self, Packed* one, int64_t now_ns) noexcept:
        """Packs a message that is ordinary and the next of its batch; False if it is not."""
        cdef Text id, number
        cdef Gathering batch
        if not self.is_open or not read_member(one, &id, &number):
            return False
        batch = self.found(&id, &number, now_ns)
        if batch is None:
            return False
        batch.packer.put(one)
        batch.last += 1
        batch.deadline_ns = now_ns + self.idle_ns_max
        return True

    cdef Gathering found(self, Text* id, Text* number, int64_t now_ns):
        """The batch that this is the next message of, and may be packed in."""
        cdef Gathering batch = self.recent
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
        """Whether there is room for one more batch, and its id is not too long."""
        return (id_bytes <= ID_BYTES_MAX and len(self.batches) < self.atomic_max
                and self.in_flight.atomic < <int>self.atomic_total_max and self.msgs_max > 0)

    cdef Gathering started(self, bytes id, int64_t now_ns):
        cdef Gathering batch = Gathering(id)
        self.batches[id] = batch
        batch.deadline_ns = now_ns + self.idle_ns_max
        self.wake_ns = self.wake_ns or batch.deadline_ns
        self.in_flight.atomic += 1
        return batch

    def start(self, bytes id not None, int64_t now_ns) -> Gathering:
        """A batch begins."""
        return self.started(id, now_ns)

    def add(self, str subject not None, bytes header not None, bytes payload not None,
            int64_t now_ns) -> bool:
        """As the lane does it with a message that it left to others: whether it was packed."""
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
        """A batch ends, one way or the other."""
        del self.batches[id]
        self.recent = None
        self.in_flight.atomic -= 1
        if not self.batches:
            self.wake_ns = 0
