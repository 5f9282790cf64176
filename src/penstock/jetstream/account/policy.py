"""What the operator decided for all accounts of a server; numbers of 0 are no limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.api.consumer_defaults import ConsumerCaps
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits

if TYPE_CHECKING:
    from penstock.api.account_usage import AccountLimits
    from penstock.store.format.encryption import ServerKey


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


def consumer_caps(policy: Policy, limits: AccountLimits) -> ConsumerCaps:
    """What server and account allow a consumer."""
    return ConsumerCaps(
        server_max_ack_pending=policy.max_ack_pending,
        server_max_batch=policy.max_request_batch,
        account_max_ack_pending=limits.max_ack_pending,
        account_max_consumers=limits.max_consumers,
        server_max_consumers=policy.default_max_consumers,
    )
