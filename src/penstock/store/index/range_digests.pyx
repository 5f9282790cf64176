"""Digests of messages over fixed ranges of RANGE_SEQS sequences, kept as messages come and go.

A digest covers sequence, time, subject, header and payload, and nothing that differs between two
copies of a stream: not the block, not the keys of its checksums. The digest of a range is the sum
of those of its live messages, so the order of additions and removals does not matter. The owner
calls `note` for each message that it adds, and `remove` with the digest of one that it removes, or
`mark_stale` if the message is not in memory; a scrub then computes the range again (`recompute`).
Streams do not use this module yet.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int64_t, uint32_t, uint64_t

from penstock.records.record_codec cimport (
    ERASED,
    MESSAGE,
    VALID,
    RecordKeys,
    RecordView,
    find_record,
    read_record,
)
from penstock.records.xxh64 cimport xxh64

RANGE_SEQS = 1 << RANGE_BITS
cdef extern from *:
    """
    #define PENSTOCK_MIX ((uint64_t)0x9E3779B97F4A7C15ULL)
    """
    const uint64_t MIX "PENSTOCK_MIX"


cdef inline uint64_t mixed(uint64_t v) noexcept nogil:
    return (v << 29 | v >> 35) * MIX

cdef inline void put_le(char* at, uint64_t v, int n) noexcept nogil:
    cdef int i
    for i in range(n):
        at[i] = <char>(v >> (8 * i) & 255)

cdef uint64_t digest(uint64_t seq, int64_t ts, const char* body, uint32_t subject_len,
                     uint32_t header_len, uint32_t payload_len) noexcept nogil:
    """Return the digest of a message whose subject, header and payload follow each other.

    Sequence, time and the two lengths that fix where the parts end are mixed into the seed, each
    step one-to-one; the hash itself includes the total length.
    """
    cdef uint64_t seed = mixed(mixed(seq * MIX) ^ <uint64_t>ts)
    seed = mixed(seed ^ (<uint64_t>subject_len << 32 | header_len))
    return xxh64(body, <size_t>subject_len + header_len + payload_len, seed)


cdef class RangeDigests:
    """The digests of a stream. A range is named by its number: sequence >> RANGE_BITS."""

    def __init__(self) -> None:
        self.ranges = {}
        self.stale = set()

    cdef int select(self, uint64_t number) except -1:
        """Make a range the current one."""
        if number == self.current:
            return 0
        self.store()
        self.current = number
        found = self.ranges.get(number)
        if found is None:
            self.sum = self.count = self.changes = 0
        else:
            self.sum, self.count, self.changes = found
        return 0

    def store(self) -> None:
        """Write the current range back to the table."""
        if self.changes:
            self.ranges[self.current] = (self.sum, self.count, self.changes)

    cdef int note(self, uint64_t seq, uint64_t value) except -1:
        self.select(seq >> RANGE_BITS)
        self.sum += value
        self.count += 1
        self.changes += 1
        return 0

    def add(self, uint64_t seq, uint64_t value) -> None:
        """Add a message."""
        self.note(seq, value)

    def remove(self, uint64_t seq, uint64_t value) -> None:
        """Remove a message that was added with this digest."""
        self.select(seq >> RANGE_BITS)
        if self.count == 0:
            raise ValueError("the range has no message")
        self.sum -= value
        self.count -= 1
        self.changes += 1

    def mark_stale(self, uint64_t seq) -> None:
        """Record that a message changed whose digest is not known: its range has to be computed
        again."""
        self.select(seq >> RANGE_BITS)
        self.changes += 1
        self.stale.add(seq >> RANGE_BITS)

    def drop_below(self, uint64_t seq) -> None:
        """Remove the ranges that end below a sequence; the range of the sequence stays as it is."""
        cdef uint64_t floor = seq >> RANGE_BITS
        self.store()
        for number in [number for number in self.ranges if number < floor]:
            del self.ranges[number]
            self.stale.discard(number)
        if self.current < floor:
            self.current = self.sum = self.count = self.changes = 0

    def numbers(self) -> list[int]:
        """Return the numbers of the ranges that have or had messages, in order."""
        self.store()
        return sorted(self.ranges)

    def get(self, uint64_t number) -> tuple[int, int] | None:
        """Return sum and count of a range; None if it is stale."""
        if number in self.stale:
            return None
        self.store()
        sum, count, _ = self.ranges.get(number, (0, 0, 0))
        return sum, count

    def changes_of(self, uint64_t number) -> int:
        """Return a number that differs after every change of a range: a scrub that read the range
        in slices compares only if it is unchanged."""
        self.store()
        return self.ranges.get(number, (0, 0, 0))[2]

    def recompute(self, uint64_t number, uint64_t sum, uint64_t count, uint64_t changes) -> bool:
        """Set what a scrub computed for a stale range; return False if it changed meanwhile."""
        if self.changes_of(number) != changes:
            return False
        self.ranges[number] = (sum, count, changes)
        self.stale.discard(number)
        if number == self.current:
            self.sum, self.count = sum, count
        return True

    def summary(self, uint64_t first, uint64_t last) -> int | None:
        """Return one digest of the ranges from `first` to `last`; None if one of them is stale.
        Ranges without messages do not count, so two copies with equal messages have equal ones."""
        cdef char fields[24]
        cdef uint64_t value = 0
        if any(first <= number <= last for number in self.stale):
            return None
        for number in self.numbers():
            sum, count, _ = self.ranges[number]
            if first <= number <= last and count:
                put_le(fields, number, 8)
                put_le(fields + 8, sum, 8)
                put_le(fields + 16, count, 8)
                value = xxh64(fields, 24, value)
        return value


def message_digest(uint64_t seq, int64_t ts_ns, bytes subject not None, bytes header not None,
                   bytes payload not None) -> int:
    """Return the digest of one message."""
    cdef bytes body = subject + header + payload
    return digest(seq, ts_ns, body, len(subject), len(header), len(payload))


def add_image(RangeDigests into not None, RecordKeys keys not None, const unsigned char[::1] image,
              size_t head, uint64_t first_seq, bytes live not None) -> int:
    """Add the live messages of a block's image; return how many of them are missing or damaged.

    `live` has a byte per sequence from `first_seq` on. A record that fails its checksum does not
    count, and a second record of a sequence neither.
    """
    cdef const char* base = <const char*>&image[0] if image.shape[0] else NULL
    cdef size_t at = head, end = image.shape[0]
    cdef uint64_t span = PyBytes_GET_SIZE(live), i
    cdef bytearray wanted = bytearray(live)
    cdef char* is_wanted = wanted
    cdef RecordView view
    cdef uint64_t left = 0
    for i in range(span):
        left += is_wanted[i] != 0
    while at < end:
        if read_record(base + at, end - at, &keys.keys, &view, True) != VALID:
            at = find_record(base, at + 8, end, &keys.keys)
            continue
        at += view.length
        if view.kind != MESSAGE or view.flags & ERASED or view.seq < first_seq:
            continue
        i = view.seq - first_seq
        if i < span and is_wanted[i]:
            is_wanted[i] = 0
            left -= 1
            into.note(view.seq, digest(view.seq, view.ts, view.subject, view.subject_len,
                                       view.header_len, view.payload_len))
    return left


def differing(RangeDigests one not None, RangeDigests other not None) -> list[int]:
    """Return the numbers of the ranges whose messages differ, or are stale in either."""
    numbers = set(one.numbers()) | set(other.numbers())
    return sorted(
        number
        for number in numbers
        if one.get(number) is None or one.get(number) != other.get(number)
    )


def add_repeated(bytes body not None, uint64_t times) -> int:
    """Digest and add the same payload as so many messages; return the last range. Benchmarks
    measure what compiled callers pay."""
    cdef RangeDigests digests = RangeDigests()
    cdef uint64_t seq
    cdef const char* data = PyBytes_AS_STRING(body)
    cdef uint32_t n = <uint32_t>PyBytes_GET_SIZE(body)
    for seq in range(1, times + 1):
        digests.note(seq, digest(seq, <int64_t>seq, data, 0, 0, n))
    return digests.current
