"""Parse header blocks to columns of names and values, in the layout of an Arrow map of lists.

A block is the line `NATS/1.0` followed by lines `Name: value`, each ended by CRLF. Names keep the
order of their first occurrence in the block, and values the order of their lines. Lines without a
colon are skipped; blanks around a value are removed. Bytes are passed on unchanged: the caller
checks whether they are valid text. A block of at most COMPARED_LINES_MAX lines creates no Python
object.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memchr, memcmp, memcpy

cdef enum:
    COMPARED_LINES_MAX = 32  # in larger blocks names are found with a dict


cdef struct Line:
    const char* name
    const char* value
    int32_t name_size
    int32_t value_size
    int32_t first  # index of the first line of the block with the same name


cdef struct Texts:
    char* data
    int32_t* ends  # ends[0] is 0
    int32_t used
    int32_t count


cdef class HeaderColumns:
    """Result of `header_columns`. `valid` has a bit set for each record that has a block."""

    cdef readonly bytes valid
    cdef readonly bytes starts  # of each record's names
    cdef readonly bytes names
    cdef readonly bytes name_offsets
    cdef readonly bytes value_starts  # of each name's values
    cdef readonly bytes values
    cdef readonly bytes value_offsets
    cdef readonly int name_count
    cdef readonly int value_count


def header_columns(bytes blocks not None, bytes offsets not None):
    """Return the columns of concatenated header blocks."""
    cdef Py_ssize_t count = len(offsets) // 4 - 1
    cdef const int32_t* at = <const int32_t*> PyBytes_AS_STRING(offsets)
    cdef Py_ssize_t lines_max = blocks.count(b"\r\n") + 1
    if count < 0 or at[0] != 0 or at[count] != len(blocks):
        raise ValueError("offsets do not fit their data")
    if not ascend(at, count):
        raise ValueError("offsets do not ascend")
    cdef Line* lines = <Line*> malloc(lines_max * sizeof(Line))
    cdef int32_t* starts = <int32_t*> malloc((count + 1) * sizeof(int32_t))
    cdef int32_t* value_starts = <int32_t*> malloc((lines_max + 1) * sizeof(int32_t))
    cdef uint8_t* valid = <uint8_t*> calloc(count // 8 + 1, 1)
    cdef Texts names
    cdef Texts values
    cdef Py_ssize_t index
    cdef Py_ssize_t found
    open_texts(&names, len(blocks), lines_max)
    open_texts(&values, len(blocks), lines_max)
    try:
        if (
            lines == NULL or starts == NULL or value_starts == NULL or valid == NULL
            or not is_open(&names) or not is_open(&values)
        ):
            raise MemoryError
        starts[0] = value_starts[0] = 0
        for index in range(count):
            found = 0
            if at[index] < at[index + 1]:
                valid[index // 8] |= <uint8_t> (1 << (index % 8))
                found = split(PyBytes_AS_STRING(blocks) + at[index], at[index + 1] - at[index], lines)
            if found > COMPARED_LINES_MAX:
                emit_by_dict(lines, found, &names, &values, value_starts)
            else:
                mark(lines, found)
                emit(lines, found, &names, &values, value_starts)
            starts[index + 1] = names.count
        return columns(valid, count, starts, value_starts, &names, &values)
    finally:
        free(lines)
        free(starts)
        free(value_starts)
        free(valid)
        close_texts(&names)
        close_texts(&values)


cdef bint ascend(const int32_t* at, Py_ssize_t count) noexcept nogil:
    """Return True if no offset exceeds the next, so all lie between the first and the last."""
    cdef Py_ssize_t index
    for index in range(count):
        if at[index] > at[index + 1]:
            return False
    return True


cdef HeaderColumns columns(
    uint8_t* valid, Py_ssize_t count, int32_t* starts, int32_t* value_starts,
    Texts* names, Texts* values,
):
    cdef HeaderColumns made = HeaderColumns.__new__(HeaderColumns)
    made.valid = PyBytes_FromStringAndSize(<char*> valid, count // 8 + 1)
    made.starts = PyBytes_FromStringAndSize(<char*> starts, (count + 1) * sizeof(int32_t))
    made.names = PyBytes_FromStringAndSize(names.data, names.used)
    made.name_offsets = offsets_of(names)
    made.value_starts = PyBytes_FromStringAndSize(
        <char*> value_starts, (names.count + 1) * sizeof(int32_t)
    )
    made.values = PyBytes_FromStringAndSize(values.data, values.used)
    made.value_offsets = offsets_of(values)
    made.name_count = names.count
    made.value_count = values.count
    return made


cdef Py_ssize_t split(const char* block, Py_ssize_t size, Line* lines) noexcept nogil:
    """Find the lines with a colon, after the first line of a block."""
    cdef const char* end = block + size
    cdef const char* line = next_line(block, end)
    cdef const char* following
    cdef const char* stop
    cdef const char* colon
    cdef Py_ssize_t found = 0
    while line < end:
        following = next_line(line, end)
        stop = following
        if following - line >= 2 and (following - 2)[0] == c"\r" and (following - 1)[0] == c"\n":
            stop = following - 2
        colon = <const char*> memchr(line, c":", stop - line)
        if colon != NULL:
            lines[found].name = line
            lines[found].name_size = <int32_t> (colon - line)
            set_value(&lines[found], colon + 1, stop)
            found += 1
        line = following
    return found


cdef const char* next_line(const char* line, const char* end) noexcept nogil:
    """Return the position after the next CRLF, or the end."""
    cdef const char* feed = line
    while feed < end:
        feed = <const char*> memchr(feed, c"\r", end - feed)
        if feed == NULL or feed + 1 >= end:
            return end
        if (feed + 1)[0] == c"\n":
            return feed + 2
        feed += 1
    return end


cdef void set_value(Line* line, const char* start, const char* stop) noexcept nogil:
    while start < stop and (start[0] == c" " or start[0] == c"\t"):
        start += 1
    while stop > start and ((stop - 1)[0] == c" " or (stop - 1)[0] == c"\t"):
        stop -= 1
    line.value = start
    line.value_size = <int32_t> (stop - start)


cdef void mark(Line* lines, Py_ssize_t count) noexcept nogil:
    """Set `first` of each line to the index of the first line with the same name."""
    cdef Py_ssize_t index
    cdef Py_ssize_t earlier
    for index in range(count):
        lines[index].first = <int32_t> index
        for earlier in range(index):
            if lines[earlier].name_size == lines[index].name_size and memcmp(
                lines[earlier].name, lines[index].name, lines[index].name_size
            ) == 0:
                lines[index].first = <int32_t> earlier
                break


cdef void emit(
    Line* lines, Py_ssize_t count, Texts* names, Texts* values, int32_t* value_starts
) noexcept nogil:
    cdef Py_ssize_t index
    cdef Py_ssize_t later
    for index in range(count):
        if lines[index].first != index:
            continue
        append(names, lines[index].name, lines[index].name_size)
        append(values, lines[index].value, lines[index].value_size)
        for later in range(index + 1, count):
            if lines[later].first == index:
                append(values, lines[later].value, lines[later].value_size)
        value_starts[names.count] = values.count


cdef int emit_by_dict(
    Line* lines, Py_ssize_t count, Texts* names, Texts* values, int32_t* value_starts
) except -1:
    """Do the same for a block of many lines, without quadratic time."""
    cdef dict seen = {}
    cdef Py_ssize_t index
    for index in range(count):
        seen.setdefault(lines[index].name[: lines[index].name_size], []).append(index)
    for places in seen.values():
        index = places[0]
        append(names, lines[index].name, lines[index].name_size)
        for index in places:
            append(values, lines[index].value, lines[index].value_size)
        value_starts[names.count] = values.count
    return 0


cdef void open_texts(Texts* texts, Py_ssize_t bytes_max, Py_ssize_t count_max) noexcept:
    texts.data = <char*> malloc(bytes_max + 1)
    texts.ends = <int32_t*> calloc(count_max + 1, sizeof(int32_t))
    texts.used = texts.count = 0


cdef bint is_open(Texts* texts) noexcept:
    return texts.data != NULL and texts.ends != NULL


cdef void close_texts(Texts* texts) noexcept:
    free(texts.data)
    free(texts.ends)


cdef void append(Texts* texts, const char* data, int32_t size) noexcept nogil:
    memcpy(texts.data + texts.used, data, size)
    texts.used += size
    texts.count += 1
    texts.ends[texts.count] = texts.used


cdef bytes offsets_of(Texts* texts):
    return PyBytes_FromStringAndSize(<char*> texts.ends, (texts.count + 1) * sizeof(int32_t))


cdef const char* SIZE_LINE = b"Nats-Msg-Size: "
cdef enum:
    SIZE_LINE_BYTES = 15
    FIRST_LINE_BYTES = 10  # NATS/1.0 and CRLF
    END_BYTES = 4  # CRLF of the last line, and the empty line
    VALUE_MAX = 200000000  # one more digit still fits 32 bits


def without_sizes(bytes blocks not None, bytes offsets not None):
    """Split header blocks of deliveries without payload into stored headers and payload sizes.

    The server adds the size as the last line of each block. Returns blocks, offsets and sizes, the
    latter two as 32-bit numbers. A block that has no other line becomes empty; one without a size
    is unchanged and has size 0.
    """
    cdef Py_ssize_t count = len(offsets) // 4 - 1
    cdef const int32_t* at = <const int32_t*> PyBytes_AS_STRING(offsets)
    if count < 0 or at[0] != 0 or at[count] != len(blocks) or not ascend(at, count):
        raise ValueError("offsets do not fit their data")
    cdef bytes kept = PyBytes_FromStringAndSize(NULL, len(blocks))
    cdef bytes ends = PyBytes_FromStringAndSize(NULL, len(offsets))
    cdef bytes sizes = PyBytes_FromStringAndSize(NULL, 4 * count)
    cdef char* out = PyBytes_AS_STRING(kept)
    cdef int32_t* end_at = <int32_t*> PyBytes_AS_STRING(ends)
    cdef int32_t* size_at = <int32_t*> PyBytes_AS_STRING(sizes)
    cdef const char* block
    cdef Py_ssize_t index, length, line, used = 0
    end_at[0] = 0
    for index in range(count):
        block = PyBytes_AS_STRING(blocks) + at[index]
        length = at[index + 1] - at[index]
        line = last_line(block, length)
        size_at[index] = size_in(block + line, length - line)
        if size_at[index] >= 0:
            length = line if line > FIRST_LINE_BYTES else 0
        memcpy(out + used, block, length)
        used += length
        if size_at[index] >= 0 and length:
            memcpy(out + used, b"\r\n", 2)
            used += 2
        size_at[index] = max(size_at[index], 0)
        end_at[index + 1] = <int32_t> used
    return kept[:used], ends, sizes


cdef Py_ssize_t last_line(const char* block, Py_ssize_t length) noexcept nogil:
    """Return the start of the last line of a block that is not empty."""
    cdef Py_ssize_t start = length - END_BYTES
    while start > 0 and block[start - 1] != c"\n":
        start -= 1
    return max(start, 0)


cdef int32_t size_in(const char* line, Py_ssize_t length) noexcept nogil:
    """Return the number in a size line that ends its block; -1 if it is no size line."""
    cdef int64_t value = 0
    cdef Py_ssize_t index
    if length <= SIZE_LINE_BYTES + END_BYTES or memcmp(line, SIZE_LINE, SIZE_LINE_BYTES) != 0:
        return -1
    for index in range(SIZE_LINE_BYTES, length - END_BYTES):
        if not c"0" <= line[index] <= c"9" or value > VALUE_MAX:
            return -1
        value = value * 10 + (line[index] - c"0")
    return <int32_t> value
