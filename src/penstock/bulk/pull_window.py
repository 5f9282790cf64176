"""How many messages a read of a range asks the server for, and when: pure arithmetic.

Invariant: no more messages are requested than are expected in the range, so a server never sends
far beyond its end. At most two requests of `chunk` messages are under way; a new one goes out when
half of that has arrived. When as many messages came as were expected and the range has not ended,
`is_probing` requests of 1, 2, 4, … messages find out the rest.

The caller reports what arrived (`delivered`, `last_seq`) and what the server cancelled
(`returned`), and sends what `next_request` returns.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

#: Messages in one request at most.
CHUNK_RECORDS: Final = 10_000
#: Bytes a request should bring, by the mean size of a message.
CHUNK_BYTES: Final = 4 << 20
#: Bytes a request may bring, whatever the sizes are: two fit into a server's `max_pending`.
REQUEST_BYTES_MAX: Final = 16 << 20
#: Messages after which their own mean size counts, not that of the whole stream.
SAMPLE_RECORDS: Final = 100


@dataclass(slots=True)
class PullWindow:
    """Sequences up to `stop_seq`, from the one after `last_seq` on."""

    stop_seq: int
    last_seq: int
    expected: int
    """Messages in the range, as counted when the read began."""
    mean_bytes: float = 1.0
    requested: int = 0
    delivered: int = 0
    is_probing: bool = False
    _probe: int = field(default=1, init=False)

    def arrived(self, delivered: int, last_seq: int, byte_count: int) -> None:
        """So many messages came in all, the last of them with this sequence."""
        self.delivered = delivered
        self.last_seq = max(self.last_seq, last_seq)
        if delivered >= SAMPLE_RECORDS:
            self.mean_bytes = byte_count / delivered

    def returned(self, count: int) -> None:
        """The server will not deliver so many of those that were requested."""
        self.requested = max(self.delivered, self.requested - count)

    @property
    def in_flight(self) -> int:
        return self.requested - self.delivered

    @property
    def chunk(self) -> int:
        return max(1, min(CHUNK_RECORDS, int(CHUNK_BYTES / max(self.mean_bytes, 1.0))))

    def next_request(self) -> int:
        """Messages to ask for now; 0 if none. They count as requested from then on."""
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
