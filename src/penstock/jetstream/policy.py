"""What the operator decided for all accounts of a server; numbers of 0 are no limit."""

from __future__ import annotations

from typing import NamedTuple

from penstock.streams.batch import BatchLimits


class Policy(NamedTuple):
    """How this server keeps and judges streams."""

    strict: bool = True
    """Whether requests with unknown fields are refused."""
    lazy: bool = False
    """Whether acknowledgements may come before the sync."""
    key: bytes = b""
    """What files are encrypted with; empty: they are not."""
    max_ack_pending: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0
    duplicate_window_ns: int = 0
    max_payload: int = 1_048_576
    batches: BatchLimits = BatchLimits()
