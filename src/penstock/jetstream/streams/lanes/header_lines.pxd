"""Parser for the lines of a header block, used by the lanes: returns spans, copies nothing."""

from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp

cdef enum:
    HEADER_BYTES_MAX = 65535
    HEADER_LINE_LEN = 10
    SEQUENCE_DIGITS_MAX = 19      # longer numbers are left to the Python path


cdef struct Text:
    const char* at
    size_t n


cdef struct Line:
    bint is_special               # the key starts with `Nats-`
    Text key
    Text value


cdef inline bint is_text(Text* text, const char* other, size_t n) noexcept nogil:
    return text.n == n and memcmp(text.at, other, n) == 0


cdef inline bint is_number(Text* text, uint64_t number) noexcept nogil:
    """Return whether the value is exactly this number."""
    cdef uint64_t value = 0
    cdef size_t i
    if text.n > SEQUENCE_DIGITS_MAX:
        return False
    for i in range(text.n):
        if not c"0" <= text.at[i] <= c"9":
            return False
        value = 10 * value + <uint64_t>(text.at[i] - c"0")
    return value == number


cdef inline const char* end_of_line(const char* at, const char* end) noexcept nogil:
    """Return where the CRLF of a line starts; NULL if there is none."""
    cdef const char* newline = at
    while True:
        newline = <const char*>memchr(newline, c"\n", end - newline)
        if newline == NULL:
            return NULL
        if newline > at and newline[-1] == c"\r":
            return newline - 1
        newline += 1


cdef inline const char* first_line(const char* block, size_t n) noexcept nogil:
    """Return the position after the version line; NULL if it is missing or the block is too
    large."""
    if not HEADER_LINE_LEN < n <= HEADER_BYTES_MAX:
        return NULL
    if memcmp(block, b"NATS/1.0\r\n", HEADER_LINE_LEN) != 0:
        return NULL
    return block + HEADER_LINE_LEN


cdef inline const char* read_line(const char* at, const char* end, Line* line) noexcept nogil:
    """Read one line and return where the next one starts; NULL if the line is malformed or its
    value is empty. The Python path handles such a block."""
    cdef const char* stop = end_of_line(at, end)
    cdef const char* colon
    if stop == NULL:
        return NULL
    line.is_special = stop - at > 5 and memcmp(at, b"Nats-", 5) == 0
    if line.is_special:
        colon = <const char*>memchr(at, c":", stop - at)
        if colon == NULL:
            return NULL
        line.key.at, line.key.n = at, colon - at
        line.value.at = colon + 1
        while line.value.at < stop and line.value.at[0] == c" ":
            line.value.at += 1
        line.value.n = stop - line.value.at
        if line.value.n == 0:
            return NULL
    return stop + 2
