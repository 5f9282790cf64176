"""Delivery pace of a consumer: original replay, and the rate limit.

Both return when the next message may be sent; the caller asks again at that time and passes the
current time in. In original replay a gap starts when the previous message was sent.
"""

from __future__ import annotations

from typing import Final

from penstock.base.units import SECOND_NS

GAP_MIN_NS: Final = 1_000_000
"""Original gaps up to this length are not reproduced."""


class ReplayPace:
    """Reproduces the gaps between the messages that existed at the start, up to `last_seq`."""

    __slots__ = ("_last_seq", "_left_ns", "_ts_ns")

    def __init__(self, last_seq: int) -> None:
        self._last_seq = last_seq
        self._ts_ns = 0
        self._left_ns = 0

    def may_go_ns(self, ts_ns: int) -> int:
        """Return when a message with this timestamp may be sent; 0: at once."""
        gap_ns = ts_ns - self._ts_ns
        return self._left_ns + gap_ns if self._ts_ns and gap_ns > GAP_MIN_NS else 0

    def left(self, ts_ns: int, now_ns: int) -> None:
        """Record that a message with this timestamp was sent."""
        self._ts_ns = ts_ns
        self._left_ns = now_ns

    def is_over(self, next_seq: int) -> bool:
        """Return whether the consumer has caught up."""
        return next_seq > self._last_seq


class RateLimit:
    """Token bucket of bytes; a message larger than the bucket waits until the bucket is full."""

    __slots__ = ("_burst", "_bytes", "_per_second", "_seen_ns")

    def __init__(self, bits_per_second: int, burst_bytes: int, now_ns: int) -> None:
        self._per_second = max(bits_per_second // 8, 1)
        self._burst = float(burst_bytes)
        self._bytes = float(burst_bytes)
        self._seen_ns = now_ns

    def may_go_ns(self, size: int, now_ns: int) -> int:
        """Return when this many bytes may be sent; 0: at once."""
        self._fill(now_ns)
        short = min(size, self._burst) - self._bytes
        if short <= 0:
            return 0
        return now_ns + max(int(short * SECOND_NS / self._per_second), 1)

    def left(self, size: int) -> None:
        """Record that this many bytes were sent."""
        self._bytes -= size

    def _fill(self, now_ns: int) -> None:
        elapsed_ns = max(now_ns - self._seen_ns, 0)
        self._seen_ns = max(now_ns, self._seen_ns)
        self._bytes = min(self._bytes + elapsed_ns * self._per_second / SECOND_NS, self._burst)
