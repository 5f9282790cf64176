"""Maps records of a bucket's stream to keys and updates: subject names and KV headers.

This is the hot path of every watch. One call converts a batch of records to updates without
creating an object per record.
"""

from __future__ import annotations

import logging
import re
from array import array
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple

from penstock.bulk.record_batch import Batch
from penstock.kv.kv_types import KvEntry, Op, VersionToken
from penstock.kv.update_batch import Updates
from penstock.wire import headers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.kv.kv_types import KvUpdate, Scope

log = logging.getLogger(__name__)

KEY: Final = re.compile(r"[-/_=a-zA-Z0-9]+(\.[-/_=a-zA-Z0-9]+)*\Z")
BUCKET: Final = re.compile(r"[-_a-zA-Z0-9]+\Z")

OPERATION: Final = b"KV-Operation"
MARKER_REASON: Final = b"Nats-Marker-Reason"
MESSAGE_ID: Final = b"Nats-Msg-Id"
MESSAGE_SIZE: Final = b"Nats-Msg-Size"
ROLLUP: Final = b"Nats-Rollup"

_OPERATIONS: Final = {b"DEL": Op.DELETE, b"PURGE": Op.PURGE}
#: The server's reasons for removing a value, and the operation a watcher reports for each.
_REASONS: Final = {b"MaxAge": Op.PURGE, b"Purge": Op.PURGE, b"Remove": Op.DELETE}


def stream_of(bucket: str) -> str:
    if not BUCKET.match(bucket):
        raise ValueError(f"{bucket!r} is no name for a bucket")
    return f"KV_{bucket}"


def prefix_of(bucket: str) -> str:
    """Return the part of a subject before the key."""
    return f"$KV.{bucket}."


def subject_of(bucket: str, key: str) -> str:
    if not KEY.match(key):
        raise ValueError(f"{key!r} is no key")
    return prefix_of(bucket) + key


def filters_of(bucket: str, scope: Scope) -> tuple[str, ...]:
    """Return the filter subjects of a scope; each prefix is empty or ends in a dot."""
    return tuple(f"{prefix_of(bucket)}{prefix}>" for prefix in scope.prefixes)


def enclosing(prefix: str) -> str:
    """Return the part of a prefix that a filter subject can express: up to its last dot."""
    return prefix[: prefix.rfind(".") + 1]


class LastWrite(NamedTuple):
    """The newest record of a key: its revision, its message id, and whether it is a removal."""

    revision: int
    message_id: str
    is_removal: bool


def last_write(revision: int, header: bytes) -> LastWrite:
    message_id = (headers.get(header, MESSAGE_ID) or b"").decode("latin-1")
    return LastWrite(revision, message_id, operation(header)[0] is not Op.PUT)


def operation(header: bytes) -> tuple[Op, str | None]:
    """Return the operation of a record, and the reason if the server removed the value."""
    found = _OPERATIONS.get(headers.get(header, OPERATION) or b"")
    if found is not None:
        return found, None
    reason = headers.get(header, MARKER_REASON) or b""
    if reason in _REASONS:
        return _REASONS[reason], reason.decode()
    return Op.PUT, None


def updates_of(batch: Batch, skipped: int, *, empty_is_delete: bool = False) -> Sequence[KvUpdate]:
    """Return the updates of a batch; `skipped` is the length of the subject before the key."""
    if not batch.subjects.isascii():
        batch = in_utf8(batch)
    if not empty_is_delete and not any(
        word in batch.headers for word in (OPERATION, MARKER_REASON)
    ):
        return Updates(batch, skipped, bytes((Op.PUT,)) * batch.count)
    ops, reasons = bytearray(), {}
    for at, (_, _, _, header, payload) in enumerate(batch.rows()):
        op, reason = operation(header) if header else (Op.PUT, None)
        if empty_is_delete and not payload and op is Op.PUT:
            op = Op.DELETE
        ops.append(op)
        if reason is not None:
            reasons[at] = reason
    return Updates(batch, skipped, bytes(ops), reasons)


def in_utf8(batch: Batch) -> Batch:
    """Return a batch without the records whose key is not UTF-8, which no fold can hold.

    Clients may publish arbitrary bytes; one such record must not block the records after it.
    """
    kept = [row for row in batch.rows() if _is_text(row[0])]
    if len(kept) == batch.count:
        return batch
    log.warning("keys left out that are not UTF-8 count=%d", batch.count - len(kept))
    subjects = [subject.encode() for subject, _, _, _, _ in kept]
    return Batch(
        len(kept),
        batch.pending,
        array("q", [seq for _, seq, _, _, _ in kept]).tobytes(),
        array("q", [time_ns for _, _, time_ns, _, _ in kept]).tobytes(),
        b"".join(subjects),
        _offsets(subjects),
        b"".join(header for _, _, _, header, _ in kept),
        _offsets([header for _, _, _, header, _ in kept]),
        b"".join(payload for _, _, _, _, payload in kept),
        _offsets([payload for _, _, _, _, payload in kept]),
    )


def _is_text(subject: str) -> bool:
    try:
        subject.encode()
    except UnicodeEncodeError:
        return False
    return True


def _offsets(pieces: Sequence[bytes]) -> bytes:
    return array("i", accumulate(map(len, pieces), initial=0)).tobytes()


def entries_of(batch: Batch, skipped: int, *, empty_is_delete: bool = False) -> list[KvEntry]:
    """Return the entries of a batch, without deletes."""
    return [
        KvEntry(one.key, one.value, VersionToken.of(one.revision))
        for one in updates_of(batch, skipped, empty_is_delete=empty_is_delete)
        if one.op is Op.PUT
    ]


def keys_of(batch: Batch, skipped: int, *, empty_is_delete: bool = False) -> list[str]:
    """Return the keys that have a value, from a headers-only batch."""
    if not batch.subjects.isascii():
        batch = in_utf8(batch)
    keys: list[str] = []
    for subject, _, _, header, _ in batch.rows():
        is_empty = empty_is_delete and headers.get(header, MESSAGE_SIZE) == b"0"
        if not is_empty and operation(header)[0] is Op.PUT:
            keys.append(subject[skipped:])
    return keys
