"""When a consumer nobody uses is abandoned, and until when it is paused.

An ephemeral consumer, or a durable one that says so, may be left alone for its threshold. What
counts as use differs: a push consumer is in use while somebody listens, a pull consumer by
requests, deliveries and acks. Whoever owns the consumer asks `due_ns` and decides.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from penstock.api.consumer_config import ConsumerConfig

EPHEMERAL_NS: Final = 5_000_000_000
"""How long an ephemeral consumer may be left alone if it does not say."""
PULL_GRACE_NS: Final = 100_000_000
"""Given to pull consumers on top: a client may be just about to ask."""


class Lifetime:
    """The countdown of one consumer."""

    __slots__ = ("due_ns", "threshold_ns")

    def __init__(self, cfg: ConsumerConfig) -> None:
        self.due_ns: int | None = None
        """When the countdown ends; None if none is running."""
        self.configure(cfg)

    def configure(self, cfg: ConsumerConfig) -> None:
        """From now on this threshold; a countdown that runs goes on."""
        threshold_ns = cfg.inactive_threshold
        if threshold_ns <= 0 and not cfg.durable_name:
            threshold_ns = EPHEMERAL_NS
        self.threshold_ns = max(threshold_ns, 0)
        if self.threshold_ns and not cfg.is_push:
            self.threshold_ns += PULL_GRACE_NS

    def start(self, now_ns: int) -> None:
        """Count from now."""
        self.due_ns = now_ns + self.threshold_ns if self.threshold_ns else None

    def stop(self) -> None:
        """It is in use."""
        self.due_ns = None

    def prolong(self, now_ns: int) -> None:
        """A countdown that runs starts again."""
        if self.due_ns is not None:
            self.start(now_ns)
