"""Lifetime of a consumer: when an unused consumer expires.

An ephemeral consumer, or a durable one with an inactive threshold, may be unused for that long. A
push consumer is in use while its deliver subject has a subscriber; a pull consumer is in use
through requests, deliveries and acks. The consumer compares `due_ns` with the time and decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig

EPHEMERAL_NS: Final = 5_000_000_000
"""The threshold of an ephemeral consumer whose configuration sets none."""
PULL_GRACE_NS: Final = 100_000_000
"""Added for pull consumers: a client may be about to send a request."""


class Lifetime:
    """The inactivity countdown of one consumer."""

    __slots__ = ("due_ns", "threshold_ns")

    def __init__(self, cfg: ConsumerConfig) -> None:
        self.due_ns: int | None = None
        """When the countdown ends; None if it is not running."""
        self.configure(cfg)

    def configure(self, cfg: ConsumerConfig) -> None:
        """Set the threshold; a running countdown continues."""
        threshold_ns = cfg.inactive_threshold
        if threshold_ns <= 0 and not cfg.durable_name:
            threshold_ns = EPHEMERAL_NS
        self.threshold_ns = max(threshold_ns, 0)
        if self.threshold_ns and not cfg.is_push:
            self.threshold_ns += PULL_GRACE_NS

    def start(self, now_ns: int) -> None:
        """Start the countdown now."""
        self.due_ns = now_ns + self.threshold_ns if self.threshold_ns else None

    def stop(self) -> None:
        """Stop the countdown: the consumer is in use."""
        self.due_ns = None

    def prolong(self, now_ns: int) -> None:
        """Restart the countdown if it is running."""
        if self.due_ns is not None:
            self.start(now_ns)
