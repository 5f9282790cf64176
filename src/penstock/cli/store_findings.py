"""What the tools find in a stream's files, and whether all of it is as it should be.

`examine` reads everything and changes nothing: blocks byte by byte, the store as a server would
open it, the state of every consumer, and the stream's own description. It yields the bytes it has
read, for whoever shows progress; what it found is in the `Finding` it was given.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from penstock.jetstream.files import META_BYTES_MAX, META_INCARNATION
from penstock.store.consumer_state import ConsumerStateStore
from penstock.store.disk import RealDisk
from penstock.store.errors import StoreError
from penstock.store.inspection import block_names, look_into, origin_of, read_block
from penstock.store.keyring import open_keys
from penstock.store.overlay import OverlayDisk
from penstock.store.slots import SlotFile, state_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jetstream.places import Place
    from penstock.store.disk import Disk
    from penstock.store.encryption import ServerKey
    from penstock.store.inspection import BlockReport, StoreReport


@dataclass(slots=True)
class Consumer:
    """A consumer's state files: what is wrong with them; nothing may be."""

    name: str
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    refused: bool = False
    """No checkpoint of it holds, so it cannot be opened."""


@dataclass(slots=True)
class Finding:
    """All that was found of one stream."""

    place: Place
    incarnation: int = 0
    blocks: list[BlockReport] = field(default_factory=list)
    unreadable: list[str] = field(default_factory=list)
    report: StoreReport | None = None
    consumers: list[Consumer] = field(default_factory=list)
    meta_problems: list[str] = field(default_factory=list)
    meta_refused: bool = False
    """Neither copy of the stream's description holds."""
    failure: str = ""
    """Why it could not be looked into, which says nothing of damage: a wrong key, say."""
    meta: bytes = b""
    """The description of the stream that block headers repeat."""

    def problems(self) -> list[str]:
        """Everything that is not as it was written, a line each."""
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
        """Whether blocks have to be written anew."""
        only = Finding(self.place, blocks=self.blocks, unreadable=self.unreadable)
        only.report = self.report
        return bool(only.problems())

    def notes(self) -> list[str]:
        """What is no damage, but worth knowing."""
        if self.report is None:
            return []
        recovery = self.report.recovery
        notes = [f"consumer {one.name}: {line}" for one in self.consumers for line in one.notes]
        notes += [f"{name}: its header does not fit, it was read all the same"
                 for name in recovery.repaired]  # fmt: skip
        if recovery.torn_bytes:
            notes.append(f"{recovery.torn_bytes} bytes of a write that was cut short")
        notes += [
            f"messages {a}-{b} were never acknowledged and are lost" for a, b in recovery.torn
        ]
        return notes


def examine(finding: Finding, options: dict[str, Any]) -> Iterator[int]:
    """Reads everything of a stream; yields bytes read."""
    disk = RealDisk.at(finding.place.messages)
    try:
        origin = origin_of(disk)
        if origin is None:
            finding.unreadable = block_names(disk)
            return
        finding.incarnation, finding.meta = origin
        yield from _blocks(finding, disk, options.get("key"))
        faulty = any(block.faults for block in finding.blocks)
        finding.report = look_into(disk, finding.incarnation, options, read_all=faulty)
        finding.consumers = [_consumer(finding, name) for name in finding.place.consumer_names()]
        _meta(finding)
    except StoreError as error:
        finding.failure = str(error)
    finally:
        disk.close()


def _blocks(finding: Finding, disk: Disk, key: ServerKey | None) -> Iterator[int]:
    keys = open_keys(OverlayDisk(disk), finding.incarnation, key, (), None, bytes)
    for name in block_names(disk):
        block = read_block(disk, name, finding.incarnation, keys)
        if block is None:
            finding.unreadable.append(name)
            continue
        finding.blocks.append(block)
        yield block.file_bytes


def _consumer(finding: Finding, name: str) -> Consumer:
    assert finding.place.consumers is not None
    disk = OverlayDisk(RealDisk.at(finding.place.consumers))
    try:
        _, report = ConsumerStateStore.open(disk, name, incarnation=finding.incarnation)
    except StoreError as error:
        return Consumer(name, [str(error)], refused=True)
    finally:
        disk.close()
    problems = [f"{one.suffix}: byte {one.offset}: {one.what}" for one in report.damage]
    problems += [f"changes {report.lost} are lost"] if report.lost else []
    notes = [f"{report.torn} copies are not whole, as a crash leaves them"] if report.torn else []
    return Consumer(name, problems, notes)


def _meta(finding: Finding) -> None:
    meta = finding.place.meta
    if meta is None:
        return
    disk = OverlayDisk(RealDisk.at(meta.parent))
    try:
        key = state_key("stream-meta", META_INCARNATION)
        slots, reading = SlotFile.open(
            disk, meta.name, key, value_bytes_max=META_BYTES_MAX, repair=False
        )
        slots.close()
        finding.meta_problems = [f"slot {one.slot}: {one.fault.value}" for one in reading.damage]
    except StoreError as error:
        finding.meta_problems, finding.meta_refused = [str(error)], True
    finally:
        disk.close()
