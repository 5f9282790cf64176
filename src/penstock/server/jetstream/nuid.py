"""Unique names (NUIDs): 22 letters and digits, as NATS clients generate them.

A random prefix and a counter that starts and steps at random: a name costs no system call and does
not reveal the next one. The prefix is drawn again when the counter overflows.
"""

from __future__ import annotations

import secrets
from typing import Final

DIGITS: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
PREFIX_LENGTH: Final = 12
COUNTER_LENGTH: Final = 10
COUNTER_MAX: Final = 62**COUNTER_LENGTH
STEP_MIN: Final = 33
STEP_MAX: Final = 333


class Nuids:
    """Generates unique names."""

    def __init__(self) -> None:
        self._restart()

    def _restart(self) -> None:
        self._prefix = "".join(secrets.choice(DIGITS) for _ in range(PREFIX_LENGTH))
        self._counter = secrets.randbelow(COUNTER_MAX)
        self._step = STEP_MIN + secrets.randbelow(STEP_MAX - STEP_MIN)

    def next(self) -> str:
        self._counter += self._step
        if self._counter >= COUNTER_MAX:
            self._restart()
        left, digits = self._counter, []
        for _ in range(COUNTER_LENGTH):
            left, at = divmod(left, 62)
            digits.append(DIGITS[at])
        return self._prefix + "".join(reversed(digits))
