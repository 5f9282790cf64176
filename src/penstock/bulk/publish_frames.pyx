"""Encode rows of columns as publish frames, many at a time, each numbered for its reply.

A column has the Arrow layout: one run of bytes with a 32-bit offset before every value and one
after the last; or it is one value for every row. Subjects and sizes are checked here, because the
server closes the connection on an invalid one. The caller checks the header lines: a line end
within a value cannot be distinguished from an intended one here.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from penstock.bulk.publish_acks cimport Window

cdef enum:
    DIGITS_MAX = 20
    LINE_EXTRA_BYTES = 64  # verb, blanks, three numbers, line end
    BLOCK_START_BYTES = 10
    ID_START_BYTES = 13
    BATCH_START_BYTES = 15
    BATCH_NUMBER_BYTES = 23
    SUBJECT_BYTES_MAX = 4096  # together with an inbox it fits the control line of any server


class RowError(ValueError):
    """A row that cannot be published. `row` is its index within the columns."""

    row = 0

    def __init__(self, row, reason):
        super().__init__(reason)
        self.row = row


cdef struct Cell:
    const char* data
    size_t size


cdef class Values:
    """A column of bytes, or one value for every row. Keeps the underlying buffers alive."""

    cdef readonly Py_ssize_t count
    cdef const int32_t* offsets  # NULL if one value applies to all rows
    cdef const char* data
    cdef size_t data_bytes
    cdef object owner

    def __init__(self, Py_ssize_t count, offsets, data, Py_ssize_t first=0):
        """Wrap Arrow buffers; `first` is the number of values in them to skip."""
        cdef const unsigned char[::1] spans = memoryview(offsets).cast("B")
        cdef const unsigned char[::1] run = memoryview(b"" if data is None else data).cast("B")
        cdef size_t needed = sizeof(int32_t) * (first + count + 1)
        if count < 0 or first < 0 or <size_t> spans.shape[0] < needed:
            raise ValueError("there are fewer offsets than values")
        self.owner = (spans, run)
        self.count = count
        self.offsets = <const int32_t*> &spans[0] + first
        if run.shape[0] > 0:
            self.data = <const char*> &run[0]
        self.data_bytes = run.shape[0]
        check_offsets(self)

    @staticmethod
    def one(bytes value not None, Py_ssize_t count):
        """Return a column with the same value in every row."""
        cdef Values made = Values.__new__(Values)
        made.owner = value
        made.count = count
        made.data = value
        made.data_bytes = len(value)
        return made

    cdef Cell at(self, Py_ssize_t row) noexcept nogil:
        cdef Cell cell
        if self.offsets == NULL:
            cell.data = self.data
            cell.size = self.data_bytes
        else:
            cell.data = self.data + self.offsets[row]
            cell.size = self.offsets[row + 1] - self.offsets[row]
        return cell


cdef int check_offsets(Values values) except -1:
    cdef Py_ssize_t row
    for row in range(values.count):
        if values.offsets[row] < 0 or values.offsets[row + 1] < values.offsets[row]:
            raise ValueError("offsets do not ascend")
    if <size_t> values.offsets[values.count] > values.data_bytes:
        raise ValueError("an offset lies behind the data")
    return 0


cdef class Frames:
    """`count` publishes as bytes; the first has the number `first`."""

    cdef readonly bytes data
    cdef readonly int64_t first
    cdef readonly Py_ssize_t count
    cdef bytes ends_bytes
    cdef const int32_t* ends

    @property
    def stop(self):
        return self.first + self.count

    def unanswered(self, Window window not None):
        """Return the bytes of the publishes without a reply, in order."""
        cdef Py_ssize_t index
        parts = []
        for index in range(self.count):
            if window.awaits(self.first + index):
                parts.append(self.frame(self.first + index))
        return b"".join(parts)

    def frame(self, int64_t number):
        """Return the bytes of one publish."""
        cdef Py_ssize_t index = number - self.first
        if not 0 <= index < self.count:
            raise IndexError("no such publish among these")
        start = self.ends[index - 1] if index else 0
        return self.data[start:self.ends[index]]


cdef struct Plan:
    const char* inbox  # prefix of the reply subject, ends in a dot; empty if no reply is wanted
    size_t inbox_bytes
    int64_t first
    size_t payload_bytes_max
    const char* common  # header lines of every row
    size_t common_bytes
    const char* batch  # id of an atomic batch, whose members count from one; or empty
    size_t batch_bytes


def encode(
    Values subjects not None, Values payloads not None, *, Values ids=None, Values lines=None,
    Py_ssize_t start=0, int64_t first=0, bytes inbox=b"", size_t bytes_max=INT32_MAX,
    size_t payload_bytes_max=INT32_MAX, Py_ssize_t rows_max=INT32_MAX, bytes batch=b"",
    bytes common=b"",
):
    """Encode rows from `start` on, as many as `rows_max` and `bytes_max` allow, but at least one.

    `ids` are message ids, `lines` are header lines with their line ends; empty values are omitted.
    `common` are header lines that every row gets, before its own. With an inbox, each row requests
    a reply at `inbox` + number. With a batch, the rows are members of that atomic batch, starting
    with member 1. `RowError` carries the index of an invalid row.
    """
    cdef Plan plan
    cdef Py_ssize_t count = subjects.count
    cdef Py_ssize_t stop
    cdef size_t size = 0
    if payloads.count != count or (ids is not None and ids.count != count) or (
        lines is not None and lines.count != count
    ):
        raise ValueError("the columns are not of one length")
    if not 0 <= start < count:
        raise ValueError("there is no such row")
    plan.inbox = inbox
    plan.inbox_bytes = len(inbox)
    plan.first = first
    plan.payload_bytes_max = payload_bytes_max
    plan.batch = batch
    plan.batch_bytes = len(batch)
    plan.common = common
    plan.common_bytes = len(common)
    stop = start
    bytes_max = min(bytes_max, <size_t> INT32_MAX)
    while stop < count and stop - start < rows_max:
        check_row(subjects, stop)
        needed = needed_for(&plan, subjects, payloads, ids, lines, stop, stop - start + 1)
        if stop > start and size + needed > bytes_max:
            break
        size += needed
        stop += 1
    return fill(&plan, subjects, payloads, ids, lines, start, stop, size)


cdef object fill(
    Plan* plan, Values subjects, Values payloads, Values ids, Values lines,
    Py_ssize_t start, Py_ssize_t stop, size_t size,
):
    cdef Frames frames = Frames.__new__(Frames)
    cdef char* room
    cdef char* at
    cdef int32_t* ends
    cdef Py_ssize_t row
    cdef Cell none
    none.data = b""
    none.size = 0
    frames.first = plan.first
    frames.count = stop - start
    frames.ends_bytes = PyBytes_FromStringAndSize(NULL, (stop - start) * sizeof(int32_t))
    ends = <int32_t*> PyBytes_AS_STRING(frames.ends_bytes)
    frames.ends = ends
    room = at = <char*> malloc(size)
    if room == NULL:
        raise MemoryError
    for row in range(start, stop):
        at = put_frame(
            at, plan, row - start + 1, subjects.at(row), payloads.at(row),
            ids.at(row) if ids is not None else none, lines.at(row) if lines is not None else none,
        )
        ends[row - start] = <int32_t> (at - room)
    try:
        frames.data = PyBytes_FromStringAndSize(room, at - room)
    finally:
        free(room)
    return frames


cdef size_t needed_for(
    Plan* plan, Values subjects, Values payloads, Values ids, Values lines, Py_ssize_t row,
    int64_t member,
) except? 0:
    """Return an upper bound of a frame's size in bytes."""
    cdef size_t header = header_bytes(
        plan, member, ids.at(row).size if ids is not None else 0,
        lines.at(row).size if lines is not None else 0,
    )
    cdef size_t body = header + payloads.at(row).size
    if body > plan.payload_bytes_max:
        raise RowError(row, f"{body} bytes, and the server takes {plan.payload_bytes_max}")
    return LINE_EXTRA_BYTES + subjects.at(row).size + plan.inbox_bytes + DIGITS_MAX + body + 2


cdef size_t header_bytes(
    const Plan* plan, int64_t member, size_t id_bytes, size_t lines_bytes
) noexcept nogil:
    cdef size_t size = plan.common_bytes + lines_bytes
    if plan.batch_bytes:
        size += BATCH_START_BYTES + plan.batch_bytes + BATCH_NUMBER_BYTES + digits_in(member) + 2
    if id_bytes:
        size += ID_START_BYTES + id_bytes + 2
    return size + BLOCK_START_BYTES + 2 if size else 0


cdef int check_row(Values subjects, Py_ssize_t row) except -1:
    cdef Cell subject = subjects.at(row)
    cdef size_t index
    cdef size_t token = 0
    cdef unsigned char byte
    cdef bint wild = False
    if subject.size == 0 or subject.size > SUBJECT_BYTES_MAX:
        raise RowError(row, f"a subject has 1 to {SUBJECT_BYTES_MAX} bytes, not {subject.size}")
    for index in range(subject.size + 1):
        byte = subject.data[index] if index < subject.size else c"."
        if byte == c".":
            if token == 0 or (token == 1 and wild):
                raise RowError(row, f"nothing can be published to {shown(subject)!r}")
            token = 0
            wild = False
        elif byte <= 32 or byte == 127:
            raise RowError(row, f"a subject has no blanks: {shown(subject)!r}")
        else:
            wild = token == 0 and (byte == c"*" or byte == c">")
            token += 1
    return 0


cdef object shown(Cell subject):
    return subject.data[: subject.size].decode("utf-8", "replace")


cdef char* put_frame(
    char* at, const Plan* plan, int64_t member, Cell subject, Cell payload, Cell id, Cell lines
) noexcept nogil:
    """Write one publish. `member` counts the rows of a call from one."""
    cdef size_t header = header_bytes(plan, member, id.size, lines.size)
    if header:
        at = put(at, b"HPUB ", 5)
    else:
        at = put(at, b"PUB ", 4)
    at = put(at, subject.data, subject.size)
    if plan.inbox_bytes:
        at = put(at, b" ", 1)
        at = put(at, plan.inbox, plan.inbox_bytes)
        at = put_number(at, plan.first + member - 1)
    if header:
        at = put(at, b" ", 1)
        at = put_number(at, header)
    at = put(at, b" ", 1)
    at = put_number(at, header + payload.size)
    at = put(at, b"\r\n", 2)
    if header:
        at = put_block(at, plan, member, id, lines)
    at = put(at, payload.data, payload.size)
    return put(at, b"\r\n", 2)


cdef char* put_block(
    char* at, const Plan* plan, int64_t member, Cell id, Cell lines
) noexcept nogil:
    at = put(at, b"NATS/1.0\r\n", BLOCK_START_BYTES)
    if plan.batch_bytes:
        at = put(at, b"Nats-Batch-Id: ", BATCH_START_BYTES)
        at = put(at, plan.batch, plan.batch_bytes)
        at = put(at, b"\r\nNats-Batch-Sequence: ", BATCH_NUMBER_BYTES)
        at = put_number(at, member)
        at = put(at, b"\r\n", 2)
    if id.size:
        at = put(at, b"Nats-Msg-Id: ", ID_START_BYTES)
        at = put(at, id.data, id.size)
        at = put(at, b"\r\n", 2)
    at = put(at, plan.common, plan.common_bytes)
    at = put(at, lines.data, lines.size)
    return put(at, b"\r\n", 2)


cdef inline char* put(char* at, const char* data, size_t size) noexcept nogil:
    if size:  # an empty column has a NULL data pointer
        memcpy(at, data, size)
    return at + size


cdef size_t digits_in(int64_t number) noexcept nogil:
    cdef size_t count = 1
    while number >= 10:
        number = number // 10
        count += 1
    return count


cdef char* put_number(char* at, int64_t number) noexcept nogil:
    cdef char digits[DIGITS_MAX]
    cdef int used = DIGITS_MAX
    while True:
        used -= 1
        digits[used] = <char> (c"0" + number % 10)
        number = number // 10
        if number == 0:
            break
    return put(at, digits + used, DIGITS_MAX - used)
