"""Decides how many messages a range read requests from the server, and when. No I/O.

Invariant: no more messages are requested than are expected in the range, so a server never sends
far beyond its end. At most two requests of `chunk` messages are in flight; a new one is sent when
half of that has arrived. When all expected messages arrived and the range has not ended, requests
of 1, 2, 4, … messages (`is_probing`) find the remaining ones.

The caller reports what arrived (`arrived`) and what the server cancelled (`returned`), and sends
what `next_request` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: Maximum number of messages in one request.
CHUNK_RECORDS: Final = 10_000
#: Target size of a request in bytes, by the mean size of a message.
CHUNK_BYTES: Final = 4 << 20
#: Upper limit of a request in bytes: two requests fit into a server's `max_pending`.
REQUEST_BYTES_MAX: Final = 16 << 20
#: Number of messages after which their own mean size replaces that of the whole stream.
SAMPLE_RECORDS: Final = 100


@dataclass(slots=True)
class PullWindow:
    """Request state for sequences after `last_seq`, up to `stop_seq`."""

    stop_seq: int
    last_seq: int
    expected: int
    """Number of messages in the range, as counted when the read began."""
    mean_bytes: float = 1.0
    requested: int = 0
    delivered: int = 0
    is_probing: bool = False
    _probe: int = field(default=1, init=False)

    def arrived(self, delivered: int, last_seq: int, byte_count: int) -> None:
        """Record the total of messages received, and the sequence of the last one."""
        self.delivered = delivered
        self.last_seq = max(self.last_seq, last_seq)
        if delivered >= SAMPLE_RECORDS:
            self.mean_bytes = byte_count / delivered

    def returned(self, count: int) -> None:
        """Record that the server will not deliver `count` of the requested messages."""
        self.requested = max(self.delivered, self.requested - count)

    @property
    def in_flight(self) -> int:
        return self.requested - self.delivered

    @property
    def chunk(self) -> int:
        return max(1, min(CHUNK_RECORDS, int(CHUNK_BYTES / max(self.mean_bytes, 1.0))))

    def next_request(self) -> int:
        """Return the number of messages to request now, and count them as requested; 0 if none."""
        left = self.stop_seq - self.last_seq - self.in_flight
        if left <= 0 or self.in_flight > self.chunk:
            return 0
        wanted = min(self.chunk, self.expected - self.requested, left)
        if wanted <= 0:
            if self.in_flight:
                return 0
            self.is_probing = True
            wanted = min(self._probe, self.chunk, left)
            self._probe *= 2
        self.requested += wanted
        return wanted
