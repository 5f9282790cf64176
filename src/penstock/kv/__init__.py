"""Key-value buckets: values, errors, reading, writing and watching; a client, never a server.

The connection loads the clients underneath when it is first used: a fold that only reads its own
files does not pay for them.
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
