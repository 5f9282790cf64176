"""Records of a bucket's stream as keys and updates: names both ways, and what a header means.

Pure, and on the hot path of every watch: one call turns a batch of records into updates.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from penstock.kv.types import KvEntry, KvUpdate, Op, VersionToken
from penstock.wire import headers

if TYPE_CHECKING:
    from penstock.bulk.batch import Batch
    from penstock.kv.types import Scope

KEY: Final = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*\Z")
BUCKET: Final = re.compile(r"[-_a-zA-Z0-9]+\Z")
SECOND_NS: Final = 1_000_000_000

OPERATION: Final = b"KV-Operation"
MARKER_REASON: Final = b"Nats-Marker-Reason"
MESSAGE_SIZE: Final = b"Nats-Msg-Size"
ROLLUP: Final = b"Nats-Rollup"

_OPERATIONS: Final = {b"DEL": Op.DELETE, b"PURGE": Op.PURGE}
#: Why the server itself removed a value, and what that is to a watcher.
_REASONS: Final = {b"MaxAge": Op.PURGE, b"Purge": Op.PURGE, b"Remove": Op.DELETE}


def stream_of(bucket: str) -> str:
    if not BUCKET.match(bucket):
        raise ValueError(f"{bucket!r} is no name for a bucket")
    return f"KV_{bucket}"


def prefix_of(bucket: str) -> str:
    """What stands in front of a key in its subject."""
    return f"$KV.{bucket}."


def subject_of(bucket: str, key: str) -> str:
    if not KEY.match(key):
        raise ValueError(f"{key!r} is no key")
    return prefix_of(bucket) + key


def filters_of(bucket: str, scope: Scope) -> tuple[str, ...]:
    """The subjects of a scope. A prefix ends in a dot, so that the wildcard is a whole token."""
    return tuple(f"{prefix_of(bucket)}{prefix}>" for prefix in scope.prefixes)


def enclosing(prefix: str) -> str:
    """The part of a prefix that a subject can ask for: up to its last dot."""
    return prefix[: prefix.rfind(".") + 1]


def operation(header: bytes) -> tuple[Op, str | None]:
    """What a record does to its key, and why if it was the server's doing."""
    said = _OPERATIONS.get(headers.get(header, OPERATION) or b"")
    if said is not None:
        return said, None
    reason = headers.get(header, MARKER_REASON) or b""
    if reason in _REASONS:
        return _REASONS[reason], reason.decode()
    return Op.PUT, None


def updates_of(batch: Batch, skipped: int, *, empty_is_delete: bool = False) -> list[KvUpdate]:
    """The records of a batch; `skipped` characters stand in front of each key."""
    updates: list[KvUpdate] = []
    for subject, seq, time_ns, header, payload in batch.rows():
        op, reason = operation(header) if header else (Op.PUT, None)
        if empty_is_delete and not payload and op is Op.PUT:
            op = Op.DELETE
        key, created = subject[skipped:], time_ns / SECOND_NS
        updates.append(KvUpdate(op, key, payload, seq, created, reason))
    return updates


def entries_of(batch: Batch, skipped: int, *, empty_is_delete: bool = False) -> list[KvEntry]:
    """The values in a batch, without deletes."""
    return [
        KvEntry(one.key, one.value, VersionToken.of(one.revision))
        for one in updates_of(batch, skipped, empty_is_delete=empty_is_delete)
        if one.op is Op.PUT
    ]


def keys_of(batch: Batch, skipped: int, *, empty_is_delete: bool = False) -> list[str]:
    """The keys with a value in a batch of headers alone."""
    keys: list[str] = []
    for subject, _, _, header, _ in batch.rows():
        is_empty = empty_is_delete and headers.get(header, MESSAGE_SIZE) == b"0"
        if not is_empty and operation(header)[0] is Op.PUT:
            keys.append(subject[skipped:])
    return keys
