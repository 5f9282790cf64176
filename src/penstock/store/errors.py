"""What can go wrong between a store and its disk.

Every failed file call arrives as a `StoreError` that keeps the path, the call and the errno, so a
log line can say what the machine said. The subclasses are the cases a caller treats differently:
a full disk may be tried again, a failed sync never, a name that is not there is often expected.
No error here carries the contents of a file.
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
    """No space, or no quota, for what was to be written. Nothing before it is in doubt."""


class NotFound(StoreError):
    """There is no file or directory of that name."""


class Locked(StoreError):
    """Another process, or another owner in this one, holds the directory."""


class InvalidName(StoreError):
    """The name is not one plain name inside a directory; no call was made with it."""

    def __init__(self, path: str, call: str, reason: str) -> None:
        super().__init__(path, call, codes.EINVAL, reason)


class SyncFailed(StoreError):
    """A sync failed, now or before: what it covered may be gone, and no later sync tells."""


class CorruptRecord(StoreError):
    """What lies at `offset` of a file is not what was written there."""

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
    """The error for a call other than a sync that failed with this errno."""
    return _KINDS.get(errno, StoreError)(path, call, errno)
