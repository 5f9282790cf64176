"""What `penstock store` finds in the files of a stream, and whether they are intact.

`examine` reads everything and changes nothing: the stream's description, its blocks byte by byte,
the store as a server would open it, the description and the state of every consumer. It yields the
number of bytes read, for a progress bar; the results are in the `Finding` that the caller passes.
The caller holds the locks (`jetstream.account.store_scan.held`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import msgspec

from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState, MalformedDelta
from penstock.jetstream.consumers.state.state_files import ConsumerStateStore
from penstock.jetstream.host.asset_files import (
    META_BYTES_MAX,
    META_INCARNATION,
    META_SUFFIX,
    ConsumerMeta,
    StreamMeta,
)
from penstock.store.errors import NotFound, StoreError
from penstock.store.format.data_keys import open_keys
from penstock.store.io.disk import RealDisk
from penstock.store.io.slots import VALUE_BYTES_MAX, SlotFile, state_key
from penstock.store.tools.inspection import block_names, look_into, origin_of, read_block
from penstock.store.tools.readonly_disk import OverlayDisk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jetstream.account.store_scan import StoreLocation
    from penstock.store.format.encryption import ServerKey
    from penstock.store.io.disk import Disk
    from penstock.store.tools.inspection import BlockReport, StoreReport


UNENCRYPTED_SHOWN: Final = 8
"""Unencrypted blocks that a remark names."""


@dataclass(slots=True)
class FoundConsumer:
    """A consumer's description and state files, and their problems."""

    name: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    has_meta: bool = True
    has_state: bool = True
    """False: it has delivered nothing yet and starts where its description specifies."""
    refused: bool = False
    """No copy of its description or of its state is valid, so it cannot be opened."""


@dataclass(slots=True)
class Finding:
    """Everything found about one stream."""

    place: StoreLocation
    incarnation: int = 0
    blocks: list[BlockReport] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    report: StoreReport | None = None
    consumers: list[FoundConsumer] = field(default_factory=list)
    meta_problems: list[str] = field(default_factory=list)
    meta_refused: bool = False
    """Neither copy of the stream's description is valid."""
    failure: str = ""
    """Why it could not be read, for a reason other than damage, such as a wrong key."""
    meta: bytes = b""
    """The description of the stream as repeated in block headers."""
    has_data_key: bool = False
    """Whether a key was configured for the store at some time."""

    def problems(self) -> list[str]:
        """Return everything that is damaged, one line each."""
        found = [f"{name}: nothing in it can be used" for name in self.unreadable]
        newest = self.blocks[-1].name if self.blocks else ""
        for block in self.blocks:
            ends = [block.tail] if block.tail is not None and block.name != newest else []
            found += [
                f"{block.name}: bytes {fault.start}-{fault.stop}: {fault.what}"
                for fault in [*block.faults, *ends]
            ]
        found += self._lost()
        found += [f"meta: {line}" for line in self.meta_problems]
        for consumer in self.consumers:
            found += [f"consumer {consumer.name}: {line}" for line in consumer.problems]
        return found

    def _lost(self) -> list[str]:
        if self.report is None:
            return []
        found = [f"messages {first}-{last} are lost" for first, last in self.report.damaged]
        recovery = self.report.recovery
        found += [f"{name}: does not follow the block before it" for name in recovery.unlinked]
        found += ["the end of the newest block is missing"] if recovery.cut_short else []
        return found

    def messages_damaged(self) -> bool:
        """Return whether blocks must be rewritten."""
        only = Finding(self.place, blocks=self.blocks, unreadable=self.unreadable)
        only.report = self.report
        return bool(only.problems())

    def notes(self) -> list[str]:
        """Return remarks that are not damage."""
        notes = [f"consumer {one.name}: {line}" for one in self.consumers for line in one.notes]
        notes += self._unencrypted()
        if self.report is None:
            return notes
        recovery = self.report.recovery
        notes += [f"{name}: its header does not fit; it was read anyway"
                 for name in recovery.repaired]  # fmt: skip
        if recovery.torn_bytes:
            notes.append(f"{recovery.torn_bytes} bytes of a write that was cut short")
        notes += [
            f"messages {a}-{b} were never acknowledged and are lost" for a, b in recovery.torn
        ]
        return notes

    def _unencrypted(self) -> list[str]:
        """Return a remark on unencrypted blocks of a store with a key.

        The server reads them, because a store may be older than its key. An attacker with access to
        the disk may have put them there.
        """
        names = [block.name for block in self.blocks if block.messages and not block.encrypted]
        if not (self.has_data_key and names):
            return []
        shown = ", ".join(names[:UNENCRYPTED_SHOWN])
        rest = f" and {len(names) - UNENCRYPTED_SHOWN} more" * (len(names) > UNENCRYPTED_SHOWN)
        return [
            f"{shown}{rest}: not encrypted, although the store has a key; correct only if they are"
            " older than the key (`penstock store rekey` encrypts them)"
        ]


def examine(finding: Finding, options: dict[str, Any]) -> Iterator[int]:
    """Read everything of a stream; yield the bytes read."""
    described = _meta(finding)
    if not finding.place.messages.is_dir():
        finding.unreadable = [finding.place.messages.name]
        return
    disk = RealDisk.at(finding.place.messages)
    try:
        origin = origin_of(disk)
        if origin is not None:
            finding.incarnation, finding.meta = origin
        if described is not None:  # a server uses this one
            finding.incarnation = described.incarnation
        if origin is None and described is None:
            finding.unreadable = block_names(disk)
        else:
            yield from _messages(finding, disk, options)
        finding.consumers = [_consumer(finding, name) for name in finding.place.consumer_names()]
    except StoreError as error:
        finding.failure = str(error)
    finally:
        disk.close()


def _messages(finding: Finding, disk: Disk, options: dict[str, Any]) -> Iterator[int]:
    yield from _blocks(finding, disk, options.get("key"))
    faulty = any(block.faults for block in finding.blocks)
    finding.report = look_into(disk, finding.incarnation, options, read_all=faulty)


def _blocks(finding: Finding, disk: Disk, key: ServerKey | None) -> Iterator[int]:
    keys = open_keys(OverlayDisk(disk), finding.incarnation, key, (), None, bytes)
    finding.has_data_key = bool(keys)
    for name in block_names(disk):
        block = read_block(disk, name, finding.incarnation, keys)
        if block is None:
            finding.unreadable.append(name)
            continue
        finding.blocks.append(block)
        yield block.file_bytes


def _meta(finding: Finding) -> StreamMeta | None:
    """Check the stream's description; return None if no copy is valid."""
    meta = finding.place.meta
    if meta is None:
        return None
    disk = OverlayDisk(RealDisk.at(meta.parent))
    try:
        key = state_key("stream-meta", META_INCARNATION)
        value, finding.meta_problems = _slots(disk, meta.name, key, META_BYTES_MAX)
        return msgspec.json.decode(value, type=StreamMeta)
    except (StoreError, msgspec.MsgspecError) as error:
        finding.meta_problems, finding.meta_refused = [str(error)], True
        return None
    finally:
        disk.close()


def _consumer(finding: Finding, name: str) -> FoundConsumer:
    """Check a consumer's description and, if it refers to state files, those files."""
    assert finding.place.consumers is not None
    if finding.meta_refused and not finding.incarnation:
        return FoundConsumer(
            name, notes=["not checked: the stream's own description does not hold"]
        )
    found = FoundConsumer(name)
    disk = OverlayDisk(RealDisk.at(finding.place.consumers))
    try:
        _consumer_meta(found, disk, finding.incarnation)
        if found.has_state:
            _consumer_state(found, disk, finding.incarnation)
    except (StoreError, MalformedDelta, msgspec.MsgspecError) as error:
        found.problems.append(str(error))
        found.refused = True
    finally:
        disk.close()
    return found


def _consumer_meta(found: FoundConsumer, disk: Disk, incarnation: int) -> None:
    """Check the `.meta` file, which records whether the state has its own files."""
    key = state_key(f"consumer-meta/{found.name}", incarnation)
    try:
        value, problems = _slots(disk, found.name + META_SUFFIX, key, VALUE_BYTES_MAX)
    except NotFound:
        found.has_meta = False
        found.notes.append("has no description: what a crash leaves of a deleted consumer")
        return
    found.problems += [f"{META_SUFFIX}: {line}" for line in problems]
    meta = msgspec.json.decode(value, type=ConsumerMeta)
    if meta.state is not None:
        found.has_state = False
        ConsumerState.decode(meta.state)


def _consumer_state(found: FoundConsumer, disk: Disk, incarnation: int) -> None:
    _, report = ConsumerStateStore.open(disk, found.name, incarnation=incarnation)
    found.problems += [f"{one.suffix}: byte {one.offset}: {one.what}" for one in report.damage]
    found.problems += [f"changes {report.lost} are lost"] if report.lost else []
    if report.torn:
        found.notes.append(f"{report.torn} copies are not whole, as a crash leaves them")


def _slots(disk: Disk, name: str, key: bytes, bytes_max: int) -> tuple[bytes, list[str]]:
    """Return the value of a two-slot file, and the problems of both slots."""
    slots, reading = SlotFile.open(disk, name, key, value_bytes_max=bytes_max, repair=False)
    slots.close()
    return reading.value, [f"slot {one.slot}: {one.fault.value}" for one in reading.damage]
