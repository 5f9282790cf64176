"""What was published and cannot be planned yet, in its order: a block must be read before.

Bounded by number and by bytes, as the reference bounds what waits to be stored. What comes on top
is not taken, and whoever sent it is told at once (429), instead of waiting for an answer in vain.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.base.message import Inbound

WAITING_MAX: Final = 10_000
WAITING_BYTES_MAX: Final = 128 * 1024 * 1024
TOO_MANY_HEADER: Final = b"NATS/1.0 429 Too Many Requests\r\n\r\n"


class PublishQueue:
    """The messages of one stream that wait."""

    def __init__(self) -> None:
        self._waiting: deque[Inbound] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, msg: Inbound) -> bool:
        """Whether there was room for one more."""
        size = _size(msg)
        if len(self._waiting) >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            return False
        self._waiting.append(msg)
        self._bytes += size
        return True

    def put_back(self, msg: Inbound) -> None:
        """It could not be planned after all, and is the next one again."""
        self._waiting.appendleft(msg)
        self._bytes += _size(msg)

    def take(self) -> Inbound:
        msg = self._waiting.popleft()
        self._bytes -= _size(msg)
        return msg


def _size(msg: Inbound) -> int:
    return len(msg.subject) + len(msg.reply) + len(msg.header) + len(msg.payload)
