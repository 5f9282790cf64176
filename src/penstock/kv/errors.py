"""Errors of buckets and watches.

Each error has a `hint` that states what to do and, if known, the bucket and the cursor. Those of
folds, which copy a bucket, derive from `KvError` in `penstock.fold.errors`. No error contains a
value, a password or a path to one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.api import refusals
from penstock.kv.kv_types import WatchCursor

if TYPE_CHECKING:
    from penstock.kv.kv_types import VersionToken


TRANSIENT_CODES = frozenset(
    {
        0,
        refusals.CLUSTER_NOT_AVAIL.err_code,
        refusals.CLUSTER_NOT_LEADER.err_code,
        refusals.CONSUMER_NAME_EXIST.err_code,
        refusals.CONSUMER_NOT_FOUND.err_code,
        refusals.SNAPSHOT_DELIVER_SUBJECT_INVALID.err_code,
        refusals.INSUFFICIENT_RESOURCES.err_code,
        refusals.NOT_ENABLED_FOR_ACCOUNT.err_code,
        refusals.STREAM_REPLICAS_NOT_SUPPORTED.err_code,
        refusals.NOT_ENABLED.err_code,
    }
)
"""Server error codes that may succeed on retry: no JetStream reply, no leader, no resources."""


class KvError(Exception):
    """Base class. `bucket` is empty and `cursor` is `WatchCursor.NONE` if unknown."""

    hint: str = ""

    def __init__(
        self, reason: str, *, bucket: str = "", cursor: WatchCursor = WatchCursor.NONE
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.bucket = bucket
        self.cursor = cursor

    def __str__(self) -> str:
        where = f"bucket {self.bucket}: " if self.bucket else ""
        return f"{where}{self.reason}" + (f" ({self.hint})" if self.hint else "")


# -- buckets


class BucketError(KvError):
    """A request to the server or the connection to it failed."""


class NotConnected(BucketError):
    hint = "call connect() first"


class ConnectionFailed(BucketError):
    hint = "check the address, the credentials and that the server runs"


class OperationTimeout(BucketError):
    hint = "whether it took effect is not known: read before trying again"


class BucketNotFound(BucketError):
    hint = "create the bucket, or check account and domain"


class AlreadyExists(BucketError):
    """`create` on a key that has a value."""

    hint = "read what is there and decide"


class RevisionMismatch(BucketError):
    """A conditional write found a version other than the expected one."""

    hint = "read again and repeat on what is there now"

    def __init__(self, reason: str, *, expected: VersionToken, bucket: str = "") -> None:
        super().__init__(reason, bucket=bucket)
        self.expected = expected


class OperationFailed(BucketError):
    """The server rejected the request. `code` is its error code, 0 if it sent none."""

    def __init__(self, reason: str, *, code: int = 0, bucket: str = "") -> None:
        super().__init__(reason, bucket=bucket)
        self.code = code

    @property
    def is_final(self) -> bool:
        """Whether the server would reject the same request again."""
        return self.code not in TRANSIENT_CODES


# -- watches


class WatchError(KvError):
    """A watch ended before the caller stopped it."""

    hint = "watch again from the last cursor"


class CursorExpired(WatchError):
    """The log no longer holds everything after `cursor`. `first_seq` is its first sequence."""

    hint = "repair the fold, or read everything again"

    def __init__(
        self, reason: str, *, first_seq: int, cursor: WatchCursor, bucket: str = ""
    ) -> None:
        super().__init__(reason, bucket=bucket, cursor=cursor)
        self.first_seq = first_seq


class ValuesLost(WatchError):
    """Values that the watch delivered may since have been purged or deleted from the bucket."""

    hint = "compare the fold with the bucket"


class LogReset(WatchError):
    """The cursor is of another log, or the log was restored to a state before the cursor."""

    hint = "the bucket was recreated or restored: repair the fold"

    def __init__(
        self,
        reason: str,
        *,
        old_identity: str,
        new_identity: str,
        bucket: str = "",
        cursor: WatchCursor = WatchCursor.NONE,
    ) -> None:
        super().__init__(reason, bucket=bucket, cursor=cursor)
        self.old_identity = old_identity
        self.new_identity = new_identity
