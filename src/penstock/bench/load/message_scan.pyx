"""Count what a server sends without building objects: the receiving half of the load generator.

A stream is a sequence of lines; MSG and HMSG lines announce payload bytes, which are skipped,
except for an optional decimal stamp at their start that verifies the order. Invariant: any chunking
of the same bytes leads to the same state. A message counts once its last byte was scanned. The
scanner touches no socket and allocates nothing while scanning.
"""

from libc.stdio cimport snprintf
from libc.string cimport memchr, memcpy

cdef enum:
    SIZE_DIGITS_MAX = 10


cdef class MessageScanner:
    """The parse state of one connection, for its whole life."""

    def __cinit__(self):
        self.state.line_kept = 0
        self.state.error[0] = 0

    def feed(self, const unsigned char[::1] data not None):
        """Scan a chunk; return False once the stream is invalid or the server reported an error."""
        if data.shape[0] == 0:
            return self.state.error[0] == 0
        return scan(&self.state, <const char*> &data[0], data.shape[0])

    def expect_stamps(self, long long cycle):
        """Expect payloads with the stamps 0..cycle-1, repeated, from now on; 0 turns this off."""
        self.state.cycle = cycle
        self.state.stamp_expected = 0

    @property
    def messages(self):
        return self.state.messages

    @property
    def misordered(self):
        return self.state.misordered

    @property
    def pings(self):
        return self.state.pings

    @property
    def pongs(self):
        return self.state.pongs

    @property
    def between_lines(self):
        """Return whether the next byte starts a new line."""
        return self.state.line_kept == 0 and not inside_payload(&self.state)

    @property
    def error(self):
        return self.state.error.decode("utf-8", "replace")


cdef bint scan(ScanState* state, const char* data, Py_ssize_t size) noexcept nogil:
    cdef const char* end = data + size
    cdef const char* newline
    if state.error[0] != 0:
        return False
    while data < end:
        if inside_payload(state):
            data = pass_payload(state, data, end)
            if data == NULL:
                return False
            continue
        newline = <const char*> memchr(data, b"\n", end - data)
        if newline == NULL:
            return keep_line(state, data, end - data)
        if not take_line(state, data, newline - data):
            return False
        data = newline + 1
    return True


cdef inline bint inside_payload(const ScanState* state) noexcept nogil:
    # Until its CRLF is scanned, payload_left is positive, so it covers header and stamp as well.
    return state.payload_left > 0


cdef inline const char* pass_payload(
    ScanState* state, const char* data, const char* end
) noexcept nogil:
    cdef long long step
    if state.header_left > 0:
        step = min(state.header_left, <long long> (end - data))
        state.header_left -= step
        data += step
    while state.stamp_left > 0 and data < end:
        state.stamp = state.stamp * 10 + (data[0] - c"0")
        state.stamp_left -= 1
        data += 1
        if state.stamp_left == 0:
            check_stamp(state)
    step = min(state.payload_left, <long long> (end - data))
    if step == 0:
        return data
    state.payload_left -= step
    data += step
    if state.payload_left > 0:
        return data
    if (data - 1)[0] != c"\n":
        fail(state, b"payload does not end where its size says")
        return NULL
    state.messages += 1
    return data


cdef inline void check_stamp(ScanState* state) noexcept nogil:
    if state.stamp != state.stamp_expected:
        state.misordered += 1
    # Resynchronise, so that one lost message counts once.
    state.stamp_expected = state.stamp + 1
    if state.stamp_expected >= state.cycle:
        state.stamp_expected = 0


cdef bint keep_line(ScanState* state, const char* data, Py_ssize_t size) noexcept nogil:
    if state.line_kept + size > LINE_BYTES_MAX:
        return fail(state, b"line too long")
    memcpy(state.line + state.line_kept, data, size)
    state.line_kept += size
    return True


cdef inline bint take_line(ScanState* state, const char* data, Py_ssize_t size) noexcept nogil:
    if state.line_kept == 0:
        return read_line(state, data, size)
    if not keep_line(state, data, size):
        return False
    size = state.line_kept
    state.line_kept = 0
    return read_line(state, state.line, size)


cdef inline bint read_line(ScanState* state, const char* line, Py_ssize_t size) noexcept nogil:
    if size > 0 and line[size - 1] == c"\r":
        size -= 1
    if size < 3:
        return fail(state, b"unknown line from the server")
    if line[0] == c"M":
        return read_message_line(state, line, size, False)
    if line[0] == c"H":
        return read_message_line(state, line, size, True)
    return read_control_line(state, line, size)


cdef inline bint read_message_line(
    ScanState* state, const char* line, Py_ssize_t size, bint with_headers
) noexcept nogil:
    cdef Py_ssize_t at = size
    cdef long long total = trailing_number(line, &at)
    cdef long long header = 0
    if with_headers and total >= 0:
        header = trailing_number(line, &at)
    if total < 0 or header < 0 or header > total:
        return fail(state, b"message line without a size")
    state.header_left = header
    state.payload_left = total - header + 2
    if state.cycle > 0:
        if total - header < STAMP_DIGITS:
            state.misordered += 1
            return True
        state.stamp = 0
        state.stamp_left = STAMP_DIGITS
        state.payload_left -= STAMP_DIGITS
    return True


cdef inline long long trailing_number(const char* line, Py_ssize_t* at) noexcept nogil:
    """Return the number that ends at `at`, and move `at` before the preceding blank; -1 if none."""
    cdef Py_ssize_t pos = at[0]
    cdef Py_ssize_t end = pos
    cdef long long value = 0
    cdef long long unit = 1
    while pos > 0 and c"0" <= line[pos - 1] <= c"9" and end - pos < SIZE_DIGITS_MAX:
        pos -= 1
        value += unit * (line[pos] - c"0")
        unit *= 10
    if pos == end or pos == 0 or line[pos - 1] != c" ":
        return -1
    at[0] = pos - 1
    return value


cdef bint read_control_line(ScanState* state, const char* line, Py_ssize_t size) noexcept nogil:
    if line[0] == c"P" and size >= 4 and line[1] == c"O":
        state.pongs += 1
        return True
    if line[0] == c"P" and size >= 4 and line[1] == c"I":
        state.pings += 1
        return True
    if line[0] == c"-":
        snprintf(state.error, ERROR_BYTES_MAX, "server said: %.*s", <int> min(size, 200), line)
        return False
    if line[0] == c"+" or line[0] == c"I":
        return True
    return fail(state, b"unknown line from the server")


cdef bint fail(ScanState* state, const char* text) noexcept nogil:
    snprintf(state.error, ERROR_BYTES_MAX, "%s", text)
    return False
