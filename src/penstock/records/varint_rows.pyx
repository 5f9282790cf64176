"""Rows of varints, as the reference server's archives have them before every message.

Seven bits per byte, least significant first; the top bit means that another byte follows. Numbers
have up to 64 bits. The reader accepts encodings longer than needed; the writer never creates them.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

cdef enum:
    ROW_MAX = 8
    NUMBER_BYTES_MAX = 10


def pack(*numbers):
    """Return up to eight numbers encoded one after the other."""
    cdef uint8_t out[ROW_MAX * NUMBER_BYTES_MAX]
    cdef int at = 0
    cdef uint64_t value
    if len(numbers) > ROW_MAX:
        raise ValueError("too many numbers")
    for number in numbers:
        value = number
        while value > 127:
            out[at] = <uint8_t>(value & 127 | 128)
            value >>= 7
            at += 1
        out[at] = <uint8_t>value
        at += 1
    return PyBytes_FromStringAndSize(<char*>out, at)


def unpack(const uint8_t[::1] data not None, Py_ssize_t start, int count):
    """Return `count` numbers from an offset on, and the offset after them; None if cut off.

    Raises ValueError if one has more than 64 bits, cut off or not.
    """
    cdef Py_ssize_t at = start, end = data.shape[0]
    cdef uint64_t value
    cdef int shift
    cdef uint8_t byte
    if start < 0:
        raise ValueError("an offset below 0")
    numbers = []
    while len(numbers) < count:
        value = shift = 0
        while True:
            if at >= end:
                return None
            byte = data[at]
            at += 1
            if shift == 63 and byte > 1:
                raise ValueError("a number of more than 64 bits")
            value |= <uint64_t>(byte & 127) << shift
            if byte < 128:
                break
            shift += 7
        numbers.append(value)
    return numbers, at
