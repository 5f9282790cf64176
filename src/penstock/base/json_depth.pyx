"""Limits the nesting depth of received JSON before a decoder reads it.

Decoders recurse for each level. Near Python's recursion limit other code fails as well: garbage
collector callbacks and destructors run wherever memory is allocated, and can neither work nor
report errors there. Callers run `check_nesting` before every decoder of bytes from a client.
"""

from libc.stdint cimport uint8_t

NESTING_MAX = 128
"""Nesting levels of lists and objects; no accepted request has more than ten."""

cdef enum:
    LEVELS_MAX = 128


class TooDeep(ValueError):
    """JSON has more levels than NESTING_MAX."""

    offset = 0

    def __init__(self, offset):
        super().__init__("exceeded max depth")
        self.offset = offset


def check_nesting(const uint8_t[::1] raw not None):
    """Raise `TooDeep` with the offset after the first bracket that is too deep.

    Counts correctly up to the first syntax error, where decoders stop.
    """
    cdef Py_ssize_t at, size = raw.shape[0]
    cdef int depth = 0
    cdef bint in_string = False
    cdef uint8_t byte
    if size <= LEVELS_MAX:
        return
    at = 0
    while at < size:
        byte = raw[at]
        at += 1
        if in_string:
            if byte == b'"':
                in_string = False
            elif byte == b"\\":
                at += 1
        elif byte == b'"':
            in_string = True
        elif byte == b"[" or byte == b"{":
            depth += 1
            if depth > LEVELS_MAX:
                raise TooDeep(at)
        elif (byte == b"]" or byte == b"}") and depth > 0:
            depth -= 1
