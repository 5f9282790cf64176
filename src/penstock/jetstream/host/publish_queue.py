"""Published messages that wait for a block to be read before the stream can plan them, in order.

Bounded by count and by bytes, as the reference bounds messages that wait to be stored. The host
refuses a message beyond the bound at once with a 429 reply, so the publisher need not time out.
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
    """The waiting messages of one stream."""

    def __init__(self) -> None:
        self._waiting: deque[Inbound] = deque()
        self._bytes = 0

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, msg: Inbound) -> bool:
        """Append a message; return False if the queue is full."""
        size = _size(msg)
        if len(self._waiting) >= WAITING_MAX or self._bytes + size > WAITING_BYTES_MAX:
            return False
        self._waiting.append(msg)
        self._bytes += size
        return True

    def put_back(self, msg: Inbound) -> None:
        """Put a message that still cannot be planned back at the head of the queue."""
        self._waiting.appendleft(msg)
        self._bytes += _size(msg)

    def take(self) -> Inbound:
        msg = self._waiting.popleft()
        self._bytes -= _size(msg)
        return msg


def _size(msg: Inbound) -> int:
    return len(msg.subject) + len(msg.reply) + len(msg.header) + len(msg.payload)
