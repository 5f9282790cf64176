"""Client for NATS key-value buckets: types, errors, readers, writers and watchers.

`NatsConfig` and `NatsConnection` are imported on first access, because they load the NATS clients.
A fold that only reads its own files does not need those clients.
"""

from typing import TYPE_CHECKING

from penstock.kv.contract import (
    BucketConfig,
    Capabilities,
    Connection,
    KvPurge,
    KvReader,
    KvStore,
    KvTtl,
    KvWatcher,
    KvWriter,
)

if TYPE_CHECKING:
    from penstock.kv.kv_connection import NatsConfig, NatsConnection

__all__ = [
    "BucketConfig",
    "Capabilities",
    "Connection",
    "KvPurge",
    "KvReader",
    "KvStore",
    "KvTtl",
    "KvWatcher",
    "KvWriter",
    "NatsConfig",
    "NatsConnection",
]


def __getattr__(name: str) -> object:
    if name not in ("NatsConfig", "NatsConnection"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from penstock.kv import kv_connection

    value: object = getattr(kv_connection, name)
    return value
