# The counting scanner, for the other compiled modules of the load generator.

cdef enum:
    LINE_BYTES_MAX = 32768  # an INFO line of a large cluster fits
    ERROR_BYTES_MAX = 256
    STAMP_DIGITS = 8  # every stamped payload starts with this many decimal digits


cdef struct ScanState:
    long long messages  # MSG and HMSG whose last byte was scanned
    long long pings
    long long pings_answered
    long long pongs
    long long misordered  # messages with an unexpected stamp
    long long cycle  # stamps run 0..cycle-1 and restart; 0: stamps are not checked
    long long stamp_expected
    long long stamp
    long long header_left  # bytes before the stamp
    long long payload_left  # bytes after the stamp, with the closing CRLF
    int stamp_left  # digits of the stamp still to come
    Py_ssize_t line_kept  # bytes of an unfinished line in `line`
    char line[LINE_BYTES_MAX]
    char error[ERROR_BYTES_MAX]  # empty as long as the stream is valid


cdef class MessageScanner:
    cdef ScanState state


# Returns False if the stream is invalid or the server sent -ERR; `error` then holds the text.
cdef bint scan(ScanState* state, const char* data, Py_ssize_t size) noexcept nogil
