"""Limits of sequence numbers for compiled code; `base/sequences.py` explains them."""

from libc.stdint cimport uint64_t

cdef extern from *:
    """
    #define PENSTOCK_SEQ_MAX ((uint64_t)0x7fffffffffffffffULL)
    """
    const uint64_t SEQ_MAX "PENSTOCK_SEQ_MAX"
