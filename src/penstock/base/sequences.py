"""Limits of sequence numbers, for every layer.

A sequence is between 1 and SEQ_MAX, so that adding one never overflows 64 bits and languages
without unsigned integers can represent it. `base/sequences.pxd` has the same limit for compiled
code. A larger number in a request is refused; in a file it is damage.
"""

from typing import Final

SEQ_MAX: Final = 9_223_372_036_854_775_807
"""2**63 - 1: the last sequence of a stream. After it, the stream accepts no more messages."""
DIGITS_MAX: Final = 20
"""Digits of a 64-bit number; Python itself refuses to parse some thousands of digits."""
NEXT_SEQ_MAX: Final = SEQ_MAX + 1
"""The largest value of "one after the last sequence"; no message ever has it."""


def number_in(digits: bytes | None) -> int:
    """Return the number in a header value; 0 if it is not a number or has too many digits."""
    if digits is None or len(digits) > DIGITS_MAX or not digits.isdigit():
        return 0
    return int(digits)
