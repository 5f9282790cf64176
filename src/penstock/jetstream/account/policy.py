"""Settings of the operator that apply to all accounts of a server; a number of 0 is no limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.api.rules.consumer_defaults import ConsumerCaps
from penstock.jetstream.streams.batches.atomic_batch import BatchLimits

if TYPE_CHECKING:
    from penstock.api.account_usage import AccountLimits
    from penstock.store.format.encryption import ServerKey


class Policy(NamedTuple):
    """How this server stores streams and checks requests."""

    strict: bool = True
    """Whether the API refuses requests with unknown fields."""
    lazy: bool = False
    """Whether the server may send publish acks before the sync."""
    key: ServerKey | None = None
    """The key for new files; None: files are not encrypted."""
    former_keys: tuple[ServerKey, ...] = ()
    """Older keys that existing files may be encrypted with."""
    key_salt: bytes | None = None
    max_ack_pending: int = 0
    max_request_batch: int = 0
    default_max_consumers: int = 0
    duplicate_window_ns: int = 0
    max_payload: int = 1_048_576
    batches: BatchLimits = BatchLimits()


def consumer_caps(policy: Policy, limits: AccountLimits) -> ConsumerCaps:
    """Return the limits that the server and the account set for a consumer."""
    return ConsumerCaps(
        server_max_ack_pending=policy.max_ack_pending,
        server_max_batch=policy.max_request_batch,
        account_max_ack_pending=limits.max_ack_pending,
        account_max_consumers=limits.max_consumers,
        server_max_consumers=policy.default_max_consumers,
    )
