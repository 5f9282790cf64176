"""What can go wrong with a local fold and with the artifacts it is copied by.

The cases are told apart by what one does next: try again, open again, rebuild from the bucket, or
fetch another artifact. Where the machine said why, its exception is the cause. No error carries a
value.
"""

from __future__ import annotations

from penstock.kv.errors import FoldError
from penstock.kv.kv_types import VersionToken, WatchCursor

__all__ = [
    "ArtifactInvalid",
    "BackendMismatch",
    "DestinationTaken",
    "FoldCorruptedError",
    "FoldError",
    "FoldFormatError",
    "FoldMismatch",
    "FoldStoreError",
    "ObjectMissing",
    "StaleArtifact",
    "StoreIOError",
    "StorePoisoned",
    "TransportError",
    "VersionReset",
    "WaitTimeout",
]


class FoldStoreError(FoldError):
    """`path` is the store's, or the artifact's."""

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
    """A call to the file system or the engine failed; nothing of the batch is in the fold."""

    hint = "see to the path, its permissions and its disk; what was there is as it was"


class FoldFormatError(FoldStoreError):
    """Not a fold of ours, not of this version, or a record that nobody wrote like this."""

    hint = "delete the store and rebuild it from the bucket or an artifact"


class FoldCorruptedError(FoldStoreError):
    """A checksum failed before the tail: what was written there once is not there now."""

    hint = "delete the store and rebuild it from the bucket or an artifact"


class FoldMismatch(FoldStoreError):
    """The fold is of another bucket or of other prefixes than it was opened for."""

    hint = "open it for what it is of, or make another at another path"


class StorePoisoned(FoldStoreError):
    """An earlier failure left it open what is on disk; nothing more is written to it."""

    hint = "close the store and open it again"


class WaitTimeout(FoldStoreError, TimeoutError):
    """The fold did not reach a revision in time. `version` is what a write returned, if any."""

    hint = "the write, if there was one, is in the bucket; wait for its version again"

    def __init__(self, reason: str, *, version: VersionToken = VersionToken.UNKNOWN) -> None:
        super().__init__(reason)
        self.version = version


class VersionReset(FoldStoreError):
    """A version to wait for is of another log than the bucket's: it was recreated or restored."""

    hint = "read the key again; what was written to the other log is not in this one"

    def __init__(self, reason: str, *, version: VersionToken = VersionToken.UNKNOWN) -> None:
        super().__init__(reason)
        self.version = version


class ArtifactInvalid(FoldStoreError):
    """The artifact cannot be used. The local store, if any, is as it was."""

    hint = "fetch another artifact, or read everything from the bucket"


class BackendMismatch(ArtifactInvalid):
    """The artifact is of a kind of store that this one cannot read."""

    hint = "export with form='append-log', which every store reads"


class DestinationTaken(ArtifactInvalid):
    """Something is where the artifact or the store was to be made."""

    hint = "choose another destination; nothing is overwritten"


class StaleArtifact(ArtifactInvalid):
    """The bucket no longer holds what came after the artifact's cursor."""

    hint = "export more often than the bucket forgets"


class TransportError(FoldStoreError):
    """The store of objects refused, failed, or did not answer in time."""

    hint = "what was published before still is; try again"


class ObjectMissing(TransportError):
    """An object is not there where one must be."""

    hint = "read the pointer again: it may name another by now"
