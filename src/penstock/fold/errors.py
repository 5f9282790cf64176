"""Errors of local folds and of artifacts.

The classes differ in what the caller does next: retry, reopen, rebuild from the bucket, or fetch
another artifact. If the operating system or the engine raised an exception, it is the cause. No
error contains a value.
"""

from __future__ import annotations

from penstock.kv.errors import KvError
from penstock.kv.kv_types import VersionToken, WatchCursor

__all__ = [
    "ApplyError",
    "ArtifactInvalid",
    "BackendMismatch",
    "DestinationTaken",
    "FoldCorruptedError",
    "FoldError",
    "FoldFormatError",
    "FoldMismatch",
    "FoldStoreError",
    "ObjectMissing",
    "RepairFailed",
    "RepairRefused",
    "StaleArtifact",
    "StoreIOError",
    "StorePoisoned",
    "TransportError",
    "VersionReset",
    "WaitTimeout",
]


class FoldError(KvError):
    """Base class. A fold also raises the errors of its bucket; `KvError` catches both."""


class FoldStoreError(FoldError):
    """Base class. `path` is the path of the store or of the artifact."""

    def __init__(
        self,
        reason: str,
        *,
        path: object = "",
        bucket: str = "",
        cursor: WatchCursor = WatchCursor.NONE,
    ) -> None:
        super().__init__(f"{path}: {reason}" if str(path) else reason, bucket=bucket, cursor=cursor)
        self.path = str(path)


class StoreIOError(FoldStoreError):
    """A call to the file system or the engine failed; the fold contains nothing of the batch."""

    hint = "see to the path, its permissions and its disk; what was there is as it was"


class FoldFormatError(FoldStoreError):
    """The file is not a fold, has another format version, or has an invalid record."""

    hint = "delete the store and rebuild it from the bucket or an artifact"


class FoldCorruptedError(FoldStoreError):
    """A checksum failed before the tail: data that was written is damaged."""

    hint = "delete the store and rebuild it from the bucket or an artifact"


class FoldMismatch(FoldStoreError):
    """The fold is of another bucket, other prefixes or another `keep` than it was opened for."""

    hint = "open it for what it is of, or make another at another path"


class StorePoisoned(FoldStoreError):
    """After an earlier failure the state on disk is unknown; the store rejects further writes."""

    hint = "close the store and open it again"


class WaitTimeout(FoldStoreError, TimeoutError):
    """The fold did not reach a revision in time. `version` is the version of the write, if any."""

    hint = "the write, if there was one, is in the bucket; wait for its version again"

    def __init__(self, reason: str, *, version: VersionToken = VersionToken.UNKNOWN) -> None:
        super().__init__(reason)
        self.version = version


class VersionReset(FoldStoreError):
    """The awaited version is of another log: the bucket was recreated or restored."""

    hint = "read the key again; what was written to the other log is not in this one"

    def __init__(self, reason: str, *, version: VersionToken = VersionToken.UNKNOWN) -> None:
        super().__init__(reason)
        self.version = version


class ArtifactInvalid(FoldStoreError):
    """The artifact cannot be used. The local store, if any, is unchanged."""

    hint = "fetch another artifact, or read everything from the bucket"


class BackendMismatch(ArtifactInvalid):
    """The artifact has a backend that this store cannot read."""

    hint = "export with form='append-log', which every store reads"


class DestinationTaken(ArtifactInvalid):
    """The destination of the artifact or the store already exists."""

    hint = "choose another destination; nothing is overwritten"


class StaleArtifact(ArtifactInvalid):
    """The artifact cannot repair this fold: for example, the bucket no longer holds everything
    after its cursor."""

    hint = "export more often than the bucket forgets"


class TransportError(FoldStoreError):
    """The object store rejected a request, failed, or did not reply in time."""

    hint = "what was published before still is; try again"


class ObjectMissing(TransportError):
    """A required object is missing."""

    hint = "read the pointer again: it may name another by now"


# -- following a bucket


class RepairRefused(FoldError):
    """No permitted repair can mend the fold."""

    hint = "the bucket drops values on its own: give a source of artifacts, or mirror=True"


class RepairFailed(FoldError):
    """A repair ended before the fold was whole."""

    hint = "the cursor has not moved; the next run repairs again"


class ApplyError(FoldError):
    """The application's `apply` raised; its exception is the cause."""

    hint = "the cursor has not moved; the batch comes again"
