"""Plans the read of stores and backups in the driver, and divides it into tasks.

A store that a running server holds is rejected: a store that changes during the read gives a state
that never existed. Nothing locks the store between planning and reading, so a task carries the
`Stamp` of each file and rejects one that differs: a server appended to it, or rewrote it. Tasks are
plain values and never contain a key.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from penstock.jetstream.account.store_scan import find_places, held
from penstock.jetstream.host.asset_files import (
    META_BYTES_MAX,
    META_INCARNATION,
    META_NAME,
    StreamMeta,
    file_name,
)
from penstock.spark.files.blocks_location import disk_at, is_url, remote_streams, stamp_at
from penstock.spark.options import OptionError
from penstock.store.errors import Locked, NotFound, StoreError
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import SlotFile, state_key
from penstock.store.tools.inspection import origin_of
from penstock.store.tools.readonly_disk import OverlayDisk
from penstock.store.tools.store_reader import data_keys, plan_read

if TYPE_CHECKING:
    from penstock.jetstream.account.store_scan import StoreLocation
    from penstock.spark.files.blocks_location import Pairs, Stamp
    from penstock.spark.files.blocks_options import BlocksOptions
    from penstock.store.format.encryption import DataKey
    from penstock.store.io.disk import Disk
    from penstock.store.tools.store_reader import BlockPlan, StorePlan

KEY_VARIABLE: Final = "PENSTOCK_STORE_KEY"
KEY_BYTES_MAX: Final = 4096
ARCHIVES: Final = ("stream.tar.s2", "stream.arc.s2")
"""Names that tools give the archive inside the directory of a backup."""
BACKUP: Final = "backup.json"
GO_META: Final = "meta.inf"
"""File in which a nats-server keeps the configuration of a stream."""
KEYRINGS_KEPT: Final = 8


class StoreChanged(Exception):
    """A store was written to after the read was planned."""


@dataclass(frozen=True, slots=True)
class StoreTask:
    """Blocks of one store, read in sequence."""

    stream: str
    messages: str
    incarnation: int
    blocks: tuple[tuple[BlockPlan, Stamp], ...]
    storage: Pairs = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class ArchiveTask:
    """One backup."""

    stream: str
    archive: str


@dataclass(frozen=True, slots=True)
class Found:
    """One store: its name, its location, and the blocks to read."""

    stream: str
    created_ns: int
    messages: str
    incarnation: int
    plan: StorePlan
    storage: Pairs = field(default=(), repr=False)


def find_archives(options: BlocksOptions) -> list[ArchiveTask]:
    """Return the backups at or directly below the path; none for object stores."""
    if is_url(options.path):
        return []
    root = Path(options.path)
    if root.is_file():
        return [ArchiveTask(options.stream or root.name.partition(".")[0], str(root))]
    if not root.is_dir():
        raise OptionError(f"option path: there is no file or directory {root}")
    found = [
        ArchiveTask(_backed_up(directory), str(directory / name))
        for directory in (root, *sorted(path for path in root.iterdir() if path.is_dir()))
        for name in ARCHIVES
        if (directory / name).is_file()
    ]
    return [task for task in found if options.stream in ("", task.stream)]


def _backed_up(directory: Path) -> str:
    try:
        name = msgspec.json.decode((directory / BACKUP).read_bytes())["config"]["name"]
    except (OSError, KeyError, TypeError, msgspec.MsgspecError):
        return directory.name
    return str(name)


def find_stores(options: BlocksOptions, storage: Pairs = ()) -> list[Found]:
    """Open and plan the stores at or below the path that the options select."""
    if is_url(options.path):
        return _find_remote(options, storage)
    places = [place for place in find_places(Path(options.path)) if _is_wanted(place, options)]
    if not places:
        raise OptionError(f"option path: there is no store{_named(options)} at {options.path}")
    _check_ours(places)
    try:
        with held(places):
            return [
                found
                for place in places
                if (found := _plan(str(place.messages), _identity(place), options)) is not None
            ]
    except Locked as lock:
        raise StoreChanged(
            f"{lock.path} is held by a running server: read it with the format jetstream, "
            "or a backup of it, or stop the server"
        ) from None


def _find_remote(options: BlocksOptions, storage: Pairs) -> list[Found]:
    """Do the same in an object store, where locks do not exist."""
    streams = [
        one
        for one in remote_streams(options.path, storage, GO_META)
        if _is_named(Path(one.directory), options.stream)
        and _is_named(Path(one.directory).parent, options.account)
    ]
    if not streams:
        raise OptionError(f"option path: there is no store{_named(options)} at {options.path}")
    found = []
    for one in streams:
        if one.is_foreign:
            raise _foreign(one.directory)
        identity = (
            _described(disk_at(one.directory, storage), META_NAME)
            if one.has_meta
            else (one.directory.rpartition("/")[2], 0)
        )
        planned = _plan(one.messages, identity, options, storage)
        found += [planned] if planned is not None else []
    return found


def _check_ours(places: list[StoreLocation]) -> None:
    """Reject the files of a nats-server, whose blocks have the same names as ours."""
    for place in places:
        if (place.messages.parent / GO_META).is_file():
            raise _foreign(str(place.messages.parent))


def _foreign(directory: str) -> OptionError:
    return OptionError(
        f"option path: {directory} was written by nats-server, whose blocks this format does not "
        "read: read the running server with the format jetstream, or make a backup (nats stream "
        "backup) and load that"
    )


def _named(options: BlocksOptions) -> str:
    stream = f" of stream {options.stream}" if options.stream else ""
    return stream + (f" of account {options.account}" if options.account else "")


def _is_wanted(place: StoreLocation, options: BlocksOptions) -> bool:
    stream = place.messages.parent
    return _is_named(stream, options.stream) and _is_named(stream.parent, options.account)


def _is_named(directory: Path, name: str) -> bool:
    return not name or directory.name in (name, file_name(name))


def _plan(
    messages: str, identity: tuple[str, int], options: BlocksOptions, storage: Pairs = ()
) -> Found | None:
    disk = disk_at(messages, storage)
    try:
        origin = origin_of(disk)
        if origin is None:
            return None
        keys = keyring(messages, origin[0], options.key_file, storage)
        plan = plan_read(disk, origin[0], keys, first=options.starting_seq, last=options.ending_seq)
        return Found(*identity, messages, origin[0], plan, storage)
    finally:
        disk.close()


def _identity(place: StoreLocation) -> tuple[str, int]:
    """Return the stream's name and creation time; if unknown, the directory's name and 0."""
    if place.meta is None:
        return place.messages.parent.name, 0
    name, created_ns = _described(RealDisk.at(place.meta.parent), place.meta.name)
    return name or place.messages.parent.name, created_ns


def _described(disk: Disk, name: str) -> tuple[str, int]:
    """Return the same from the file that describes a stream; empty if it cannot be read."""
    overlay = OverlayDisk(disk)
    try:
        key = state_key("stream-meta", META_INCARNATION)
        slots, reading = SlotFile.open(
            overlay, name, key, value_bytes_max=META_BYTES_MAX, repair=False
        )
        slots.close()
        meta = msgspec.json.decode(reading.value, type=StreamMeta)
        return str(msgspec.json.decode(meta.config)["name"]), meta.created_ns
    except (StoreError, KeyError, msgspec.MsgspecError):
        return "", 0
    finally:
        overlay.close()


def tasks_of(found: Found, bytes_max: int) -> list[StoreTask]:
    """Group adjacent blocks of a store, so that a task reads about `bytes_max` bytes."""
    tasks: list[StoreTask] = []
    waiting: list[tuple[BlockPlan, Stamp]] = []
    size = 0
    for block in found.plan.blocks:
        stamp = stamp_at(found.messages, block.name, found.storage)
        if waiting and size + stamp.size > bytes_max:
            tasks.append(_task(found, waiting))
            waiting, size = [], 0
        waiting.append((block, stamp))
        size += stamp.size
    return [*tasks, _task(found, waiting)] if waiting else tasks


def _task(found: Found, blocks: list[tuple[BlockPlan, Stamp]]) -> StoreTask:
    return StoreTask(found.stream, found.messages, found.incarnation, tuple(blocks), found.storage)


def check_stamp(task: StoreTask, name: str, stamp: Stamp) -> None:
    """Raise unless the file has the same stamp as when the read was planned."""
    try:
        same = stamp_at(task.messages, name, task.storage) == stamp
    except (FileNotFoundError, NotFound):
        same = False
    if not same:
        raise StoreChanged(
            f"{task.messages}/{name} changed since the read was planned: did a server start?"
        )


@lru_cache(KEYRINGS_KEPT)
def keyring(
    messages: str, incarnation: int, key_file: str, storage: Pairs = ()
) -> dict[int, DataKey]:
    """Return the data keys of a store, decrypted with the server's key from a file or the
    environment.

    Key derivation is slow by design, so the result is cached per process.
    """
    from penstock.store.format.encryption import ServerKey

    secret = os.environ.get(KEY_VARIABLE, "")
    if key_file:
        try:
            secret = Path(key_file).read_text()[:KEY_BYTES_MAX].strip()
        except OSError as error:
            raise OptionError(f"option keyFile: {error.strerror}") from None
    disk = disk_at(messages, storage)
    try:
        return data_keys(disk, incarnation, ServerKey(secret) if secret else None)
    finally:
        disk.close()
