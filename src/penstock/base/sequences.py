"""Bounds of sequence numbers, for every layer.

A sequence is between 1 and SEQ_MAX, so that one more never wraps around in 64 bits, and readers in
languages without unsigned numbers can hold it. `base/sequences.pxd` has the same numbers for
compiled code. A larger number is refused in a request, and is damage in a file.
"""

from typing import Final

SEQ_MAX: Final = 9_223_372_036_854_775_807
"""2**63 - 1: the last sequence of a stream. One that has given it out takes no more messages."""
DIGITS_MAX: Final = 20
"""Of a number of 64 bits; Python itself refuses to read some thousands of digits."""
NEXT_SEQ_MAX: Final = SEQ_MAX + 1
"""The largest value of "one after the last sequence"; no message ever has it."""


def number_in(digits: bytes | None) -> int:
    """Return the number that a header's value is; 0 if it is none, or has too many digits."""
    if digits is None or len(digits) > DIGITS_MAX or not digits.isdigit():
        return 0
    return int(digits)
