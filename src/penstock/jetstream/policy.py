"""What the operator decided for all accounts of a server; numbers of 0 are no limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.streams.batch import BatchLimits

if TYPE_CHECKING:
    from penstock.store.encryption import ServerKey


class Policy(NamedTuple):
    """How this server keeps and judges streams."""

    strict: bool = True
    """Whether requests with unknown fields are refused."""
    lazy: bool = False
    """Whether acknowledgements may come before the sync."""
    key: ServerKey | None = None
    """What files are encrypted with; None: they are not."""
    former_keys: tuple[ServerKey, ...] = ()
    """What they may still be encrypted with."""
    key_salt: bytes | None = None
    max_ack_pending: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0
    duplicate_window_ns: int = 0
    max_payload: int = 1_048_576
    batches: BatchLimits = BatchLimits()
