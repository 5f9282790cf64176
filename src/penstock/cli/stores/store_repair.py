"""Repair a stream's files without destroying anything.

Messages: everything readable is written to a new directory, which replaces the old one only when it
is complete and durable; the old one stays next to it under another name. Consumers and
descriptions: the files are copied aside, then opened, which rewrites the damaged copy from the
intact one. A crash in any step leaves the old directory or both, never neither.
"""

from __future__ import annotations

import os
import shutil
from typing import TYPE_CHECKING, Any, Final

from penstock.jetstream.account.store_scan import ASIDE, UNFINISHED, aside_name
from penstock.jetstream.consumers.state.consumer_recovery import LOG_SUFFIXES, STATE_SUFFIX
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.jetstream.host.asset_files import META_BYTES_MAX, META_INCARNATION, META_SUFFIX
from penstock.store.filestore import FileStore
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import SlotFile, state_key
from penstock.store.tools.inspection import copy_store
from penstock.store.tools.readonly_disk import OverlayDisk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.cli.stores.store_findings import Finding, FoundConsumer
    from penstock.store.io.disk import Disk

CONSUMER_SUFFIXES: Final = (META_SUFFIX, STATE_SUFFIX, *LOG_SUFFIXES)


def rebuild_messages(
    finding: Finding, options: dict[str, Any], new_options: dict[str, Any] | None = None
) -> Iterator[int]:
    """Rewrite the messages and swap the directories; yield how many are written.

    A new store has its own data key. `new_options` holds the options in which the new store
    differs.
    """
    old = finding.place.messages
    new = aside_name(old, UNFINISHED)
    source_disk, target_disk = RealDisk.at(old), RealDisk.at(new, create=True)
    try:
        given = {"incarnation": finding.incarnation, "noise": os.urandom, **options}
        source = FileStore.open(OverlayDisk(source_disk), **given)
        target = FileStore.open(target_disk, **given | (new_options or {}), meta=finding.meta)
        yield from copy_store(source, target)
        _check_alike(source, target)
        target.close()
    finally:
        source_disk.close()
        target_disk.close()
    swap(old, new)


def _check_alike(source: FileStore, target: FileStore) -> None:
    ours, theirs = target.state(), source.state()
    assert (ours.msgs, ours.bytes, ours.last_seq) == (theirs.msgs, theirs.bytes, theirs.last_seq)


def swap(old: Path, new: Path) -> Path:
    """Give the new directory the old one's name; return the new name of the old one."""
    aside = aside_name(old)
    parent = RealDisk.at(old.parent)
    try:
        parent.rename(old.name, aside.name)
        parent.rename(new.name, old.name)
        parent.sync_dir()
    finally:
        parent.close()
    return aside


def asides(messages: Path) -> list[Path]:
    """Return what earlier repairs have kept, the newest last."""
    found = messages.parent.glob(f"{messages.name}{ASIDE}*")
    return sorted(found, key=lambda path: int(path.name.rpartition("-")[2]))


def destroy(aside: Path) -> None:
    """Remove durably what a swap has put aside."""
    shutil.rmtree(aside)
    parent = RealDisk.at(aside.parent)
    try:
        parent.sync_dir()
    finally:
        parent.close()


def finish_swap(messages: Path) -> bool:
    """Complete a swap that a crash interrupted between its two renames; return whether it did."""
    ready = sorted(messages.parent.glob(f"{messages.name}{UNFINISHED}*"))
    if messages.exists() or not ready or not asides(messages):
        return False
    parent = RealDisk.at(messages.parent)
    try:
        parent.rename(ready[-1].name, messages.name)
        parent.sync_dir()
    finally:
        parent.close()
    return True


def repair_consumers(finding: Finding) -> list[str]:
    """Repair the consumers that can be opened; return the paths of their old files."""
    kept = []
    for consumer in finding.consumers:
        if not consumer.problems or consumer.refused:
            continue
        assert finding.place.consumers is not None
        paths = [finding.place.consumers / f"{consumer.name}{s}" for s in CONSUMER_SUFFIXES]
        kept += [str(_copied_aside(path)) for path in paths if path.exists()]
        disk = RealDisk.at(finding.place.consumers)
        try:
            disk.sync_dir()
            _reopen_consumer(disk, consumer, finding.incarnation)
        finally:
            disk.close()
    return kept


def _reopen_consumer(disk: Disk, consumer: FoundConsumer, incarnation: int) -> None:
    """Open the files as a server does, which rewrites the damaged copies."""
    if consumer.has_meta:
        key = state_key(f"consumer-meta/{consumer.name}", incarnation)
        SlotFile.open(disk, consumer.name + META_SUFFIX, key)[0].close()
    if consumer.has_state:
        ConsumerStateStore.open(disk, consumer.name, incarnation=incarnation)[0].close()


def repair_meta(finding: Finding) -> list[str]:
    """Rewrite the damaged slot of the stream's description; return the path of the old file."""
    meta = finding.place.meta
    if meta is None or not finding.meta_problems or finding.meta_refused:
        return []
    kept = _copied_aside(meta)
    disk = RealDisk.at(meta.parent)
    try:
        disk.sync_dir()
        key = state_key("stream-meta", META_INCARNATION)
        slots, _ = SlotFile.open(disk, meta.name, key, value_bytes_max=META_BYTES_MAX)
        slots.close()
    finally:
        disk.close()
    return [str(kept)]


def _copied_aside(path: Path) -> Path:
    copy = aside_name(path)
    shutil.copy2(path, copy)
    with copy.open("rb") as file:
        os.fsync(file.fileno())
    return copy
