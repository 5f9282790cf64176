"""Location of the blocks of a store: a directory, or a URL of an object store.

A location is two plain values, so that it can be sent to tasks and serve as a key: the directory or
URL of the messages, and the options of the object store as pairs.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from penstock.jetstream.host.asset_files import META_NAME
from penstock.spark.files.archive_storage import ObjectStorage, StorageError
from penstock.spark.files.object_disk import ObjectDisk
from penstock.spark.files.storage_options import nested
from penstock.spark.options import OptionError
from penstock.store.block_file import number_of
from penstock.store.io.disk import RealDisk

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from penstock.store.io.disk import Disk

Pairs = tuple[tuple[str, str], ...]


class Stamp(NamedTuple):
    """Identity, size and modification time of a file or an object."""

    identity: str
    size: int
    modified_ns: int

    @classmethod
    def of(cls, path: Path) -> Stamp:
        status = path.stat()
        return cls(str(status.st_ino), status.st_size, status.st_mtime_ns)


class RemoteStream(NamedTuple):
    """URLs of a stream in an object store."""

    directory: str
    messages: str
    has_meta: bool
    is_foreign: bool


def is_url(place: str) -> bool:
    return "://" in place


def pairs_of(options: Mapping[str, str]) -> Pairs:
    return tuple(sorted(options.items()))


def disk_at(place: str, storage: Pairs = ()) -> Disk:
    """Return the files of a directory or below a URL."""
    if not is_url(place):
        return RealDisk.at(place)
    store = ObjectStorage(place, nested(dict(storage))).store()
    return ObjectDisk(store, "", place)


def stamp_at(place: str, name: str, storage: Pairs = ()) -> Stamp:
    """Return the current stamp of a file; raises StoreError or FileNotFoundError if it is
    missing."""
    if not is_url(place):
        return Stamp.of(Path(place, name))
    disk = disk_at(place, storage)
    assert isinstance(disk, ObjectDisk)
    return Stamp(*disk.stamp(name), 0)


def remote_streams(url: str, storage: Pairs, foreign_name: str) -> Iterator[RemoteStream]:
    """Yield the streams below a URL; one with a file of the foreign name belongs to nats-server."""
    try:
        listed = list(ObjectStorage(url, nested(dict(storage))).listed(""))
    except StorageError as error:
        raise OptionError(f"option path: {error}") from None
    paths = {one.path for one in listed}
    directories = {
        path.rpartition("/")[0] for path in paths if number_of(path.rpartition("/")[2]) is not None
    }
    top = url.rstrip("/")
    for messages in sorted(directories):
        stream = messages.rpartition("/")[0]
        before = f"{stream}/" if stream else ""
        yield RemoteStream(
            f"{top}/{stream}".rstrip("/") if messages else top.rpartition("/")[0],
            f"{top}/{messages}".rstrip("/"),
            f"{before}{META_NAME}" in paths and bool(messages),
            f"{before}{foreign_name}" in paths,
        )
