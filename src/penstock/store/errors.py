"""Errors between a store and its disk.

Every failed file call raises a `StoreError` that keeps the path, the call and the errno for the
log line. The subclasses are the cases that callers treat differently: a caller may retry after a
full disk, never after a failed sync, and often expects a missing name. No error here carries the
contents of a file.
"""

from __future__ import annotations

import errno as codes
import os


class StoreError(Exception):
    """A file call failed: `call` on `path`, for the reason `errno`."""

    def __init__(self, path: str, call: str, errno: int, reason: str = "") -> None:
        super().__init__(f"{call} {path!r}: {reason or os.strerror(errno)}")
        self.path = path
        self.call = call
        self.errno = errno


class DiskFull(StoreError):
    """No space or quota for a write. Earlier writes are not affected."""


class NotFound(StoreError):
    """No file or directory has that name."""


class Locked(StoreError):
    """Another process, or another owner in this one, holds the directory."""


class InvalidName(StoreError):
    """The name is not one plain name inside a directory; no file call used it."""

    def __init__(self, path: str, call: str, reason: str) -> None:
        super().__init__(path, call, codes.EINVAL, reason)


class SyncFailed(StoreError):
    """A sync failed, now or earlier: the data it covered may be lost, and no later sync reports
    it."""


class CorruptRecord(StoreError):
    """The bytes at `offset` of a file are not what was written there."""

    def __init__(self, path: str, offset: int, reason: str) -> None:
        super().__init__(path, "read", codes.EBADMSG, f"corrupt at byte {offset}: {reason}")
        self.offset = offset
        self.reason = reason


_KINDS: dict[int, type[StoreError]] = {
    codes.ENOSPC: DiskFull,
    codes.EDQUOT: DiskFull,
    codes.ENOENT: NotFound,
    codes.EWOULDBLOCK: Locked,
}


def failure(path: str, call: str, errno: int) -> StoreError:
    """Return the error for a call, other than a sync, that failed with this errno."""
    return _KINDS.get(errno, StoreError)(path, call, errno)
