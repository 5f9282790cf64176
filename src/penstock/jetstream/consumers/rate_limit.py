"""How fast a consumer may deliver: at the pace of the original, or below a rate.

Answers when the next message may go; a message held back is asked about again then. Time is the
caller's. With the original's pace a gap starts when the message before it has left.
"""

from __future__ import annotations

from typing import Final

SECOND_NS: Final = 1_000_000_000
GAP_MIN_NS: Final = 1_000_000
"""Gaps of the original up to this are not reproduced."""


class ReplayPace:
    """Reproduces the gaps between messages that were there when it began, up to `last_seq`."""

    __slots__ = ("_last_seq", "_left_ns", "_ts_ns")

    def __init__(self, last_seq: int) -> None:
        self._last_seq = last_seq
        self._ts_ns = 0
        self._left_ns = 0

    def may_go_ns(self, ts_ns: int) -> int:
        """When a message of that time may go; 0: at once."""
        gap_ns = ts_ns - self._ts_ns
        return self._left_ns + gap_ns if self._ts_ns and gap_ns > GAP_MIN_NS else 0

    def left(self, ts_ns: int, now_ns: int) -> None:
        """A message of that time has gone."""
        self._ts_ns = ts_ns
        self._left_ns = now_ns

    def is_over(self, next_seq: int) -> bool:
        """Whether the consumer has caught up."""
        return next_seq > self._last_seq


class RateLimit:
    """A bucket of bytes that fills at a rate; a message larger than it waits for a full one."""

    __slots__ = ("_burst", "_bytes", "_per_second", "_seen_ns")

    def __init__(self, bits_per_second: int, burst_bytes: int, now_ns: int) -> None:
        self._per_second = max(bits_per_second // 8, 1)
        self._burst = float(burst_bytes)
        self._bytes = float(burst_bytes)
        self._seen_ns = now_ns

    def may_go_ns(self, size: int, now_ns: int) -> int:
        """When so many bytes may go; 0: at once."""
        self._fill(now_ns)
        short = min(size, self._burst) - self._bytes
        if short <= 0:
            return 0
        return now_ns + max(int(short * SECOND_NS / self._per_second), 1)

    def left(self, size: int) -> None:
        """So many bytes have gone."""
        self._bytes -= size

    def _fill(self, now_ns: int) -> None:
        elapsed_ns = max(now_ns - self._seen_ns, 0)
        self._seen_ns = max(now_ns, self._seen_ns)
        self._bytes = min(self._bytes + elapsed_ns * self._per_second / SECOND_NS, self._burst)
