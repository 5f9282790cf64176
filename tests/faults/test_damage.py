"""Damage at rest to any file of a store: it opens, loses only what was touched, and says so.

One settled store is damaged in every way at every place, one damage at a time. What a file holds
is found out by losing it; where a message lies, by looking for its payload. No test here knows
the formats, so a new kind of file is swept as soon as a store makes one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from faults.store_lives import HEADER, SECOND, opened
from faults.verdicts import FILE_BYTES_MAX, contents
from penstock.store.contract import Missing
from penstock.store.errors import StoreError
from penstock.store.format.compression import BlockCompression
from penstock.store.format.encryption import ServerKey
from penstock.store.tools.inspection import block_names
from penstock.testing import damage
from penstock.testing.sim_disk import SimDisk
from penstock.testing.sim_files import PAGE, Choice
from support.files import warmed

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Callable, Iterator

    from penstock.store.contract import MessageRecord

LONG_ROUNDS = 5
MESSAGES = 90
REMOVED = (3, 4, 20, 41, 42, 43, 70)
ERASED = (10, 55)
BLOCK_BYTES = 3000
FLIP_EVERY_BYTES = 3
CUT_EVERY_BYTES = 5
SEALED_STEP = 7
"""Bytes of sealed blocks stand for each other: that much fewer places are tried there."""
GROWTH_KIB_MAX = 64 * 1024


@dataclass(frozen=True)
class Settled:
    """A store at rest, what it holds, and which messages each file alone accounts for."""

    disk: SimDisk
    options: dict[str, Any]
    held: dict[int, MessageRecord]
    removed: dict[int, MessageRecord]
    """What was taken out: if the record that says so is lost, it may come back."""
    newest: str
    sole: dict[str, set[int]] = field(default_factory=dict)

    @classmethod
    def make(cls, options: dict[str, Any]) -> Settled:
        disk, chance = SimDisk(), Random(5)
        options = {"block_bytes": BLOCK_BYTES, **options}
        store = opened(disk, options)
        for seq in range(1, MESSAGES + 1):
            payload = b"<%04d>" % seq * chance.randrange(3, 30)
            header = HEADER if seq % 9 == 0 else b""
            store.append(f"s.{seq % 7}", header, payload, seq * SECOND)
            if seq % 13 == 0:
                sync(store)
        sync(store)
        everything = contents(store)
        for seq in REMOVED:
            assert store.remove(seq)
        for seq in ERASED:
            assert warmed(store, lambda seq=seq: store.erase(seq))
        sync(store)
        while (work := store.pending_compaction()) is not None:
            work.run()
            store.compacted(work)
            sync(store)
        held = contents(store)
        store.close()
        newest = max(block_names(disk), key=lambda name: int(name.partition(".")[0]))
        return cls(disk, options, held, {seq: everything[seq] for seq in REMOVED}, newest)

    def harmed(self, harm: Callable[..., None], *args: Any) -> SimDisk:
        copy = self.disk.crash(Choice())
        harm(copy, *args)
        return copy

    def bytes_of(self, name: str) -> bytes:
        return self.disk.read_small(name, FILE_BYTES_MAX)

    @property
    def plain(self) -> bool:
        return not self.options.keys() & {"compression", "key"}

    def step(self, every_bytes: int, rounds: int) -> int:
        """From one place that is tried to the next."""
        return max(1, every_bytes * (1 if self.plain else SEALED_STEP) // rounds)

    @property
    def lost_to_a_bit(self) -> int:
        """Messages that are compressed or encrypted together are lost together."""
        return 1 if self.plain else MESSAGES

    def within(self, name: str, start: int, stop: int) -> set[int]:
        """The messages whose records these bytes may touch: from one payload to the next."""
        if name not in block_names(self.disk):
            return set()
        if not self.plain:
            return self.only_in(name)
        data = self.bytes_of(name)
        places = sorted(
            (data.index(record.payload), seq)
            for seq, record in self.held.items()
            if record.payload in data
        )
        ends = [at + len(self.held[seq].payload) for at, seq in places]
        starts = [at for at, _ in places]
        lows = [0, *ends[:-1]]
        highs = [*starts[1:], len(data)]
        return {
            seq
            for (_, seq), low, high in zip(places, lows, highs, strict=True)
            if low < stop and start < high
        }

    def only_in(self, name: str) -> set[int]:
        """The messages that are lost with a file."""
        if name not in self.sole:
            store = opened(self.harmed(damage.lose, name), self.options)
            self.sole[name] = self.held.keys() - contents(store).keys()
        return self.sole[name]


def sync(store: Any) -> None:
    while (work := store.pending_sync()) is not None:
        work.run()
        store.synced(work)


def verdict(
    settled: Settled, harmed: SimDisk, name: str, touched: set[int], lost_max: int = MESSAGES
) -> list[str]:
    """What is wrong with a store of which these messages in this file were touched."""
    try:
        store = opened(harmed, settled.options)
    except StoreError as error:
        return [f"does not open: {error!r}"]
    found = contents(store)
    lost = settled.held.keys() - found.keys()
    may_be = settled.held | (settled.removed if name == settled.newest else {})
    wrong = [
        f"{seq} is not what was written, or was removed"
        for seq, record in found.items()
        if may_be.get(seq) != record
    ]
    wrong += [f"{seq} was not touched and is lost" for seq in sorted(lost - touched)]
    if len(lost) > lost_max:
        wrong.append(f"lost are {sorted(lost)}")
    state = store.state()
    for seq in sorted(lost):
        if not any(first <= seq <= last for first, last in state.damaged):
            wrong.append(f"{seq} is lost and not reported")
        elif store.load(seq) is not Missing.DAMAGED:
            wrong.append(f"{seq} is lost and reads as {store.load(seq)}")
    if lost or found.keys() - settled.held.keys():
        told = store.recovery
        if not (state.damaged or told.cut_short or told.unreadable or told.faulty):
            wrong.append(f"nothing is reported: {told}")
    store.close()
    return wrong


STORES: dict[str, dict[str, Any]] = {
    "plain": {},
    "compressed": {"compression": BlockCompression.ZSTD},
    "encrypted": {"key": ServerKey("secret")},
}
KEYS = "keys"
"""Without it an encrypted store is not opened; there is nothing to be lost but it."""


@pytest.fixture(params=STORES, scope="module")
def settled(request: pytest.FixtureRequest) -> Settled:
    return Settled.make(STORES[request.param])


def resident_kib(what: str) -> int:
    (line,) = re.findall(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(line)


def every_flip(settled: Settled, rounds: int) -> Iterator[tuple[str, int]]:
    chance = Random(rounds)
    step = settled.step(FLIP_EVERY_BYTES, rounds)
    for name in settled.disk.files():
        for at in range(0, len(settled.bytes_of(name)), step):
            for bit in chance.sample(range(8), min(8, 1 + rounds // FLIP_EVERY_BYTES)):
                yield name, at * 8 + bit


def test_flipped_bit_costs_one_message_or_what_is_sealed_with_it(
    settled: Settled, rounds: int, tried: Counter[str]
) -> None:
    before = resident_kib("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    for name, bit in every_flip(settled, rounds):
        harmed = settled.harmed(damage.flip_bit, name, bit)
        touched = settled.within(name, bit // 8, bit // 8 + 1)
        wrong = verdict(settled, harmed, name, touched, settled.lost_to_a_bit)
        assert wrong == [], f"{name}: bit {bit}"
        tried["bits flipped"] += 1
    assert resident_kib("VmHWM") - before < GROWTH_KIB_MAX


def test_zeroed_page_costs_only_messages_on_it(settled: Settled, tried: Counter[str]) -> None:
    for name in settled.disk.files():
        for page in range(-(-len(settled.bytes_of(name)) // PAGE)):
            harmed = settled.harmed(damage.zero_page, name, page)
            touched = settled.within(name, page * PAGE, (page + 1) * PAGE)
            wrong = verdict(settled, harmed, name, touched)
            assert wrong == [], f"{name}: page {page}"
            tried["pages zeroed"] += 1


def test_file_cut_short_costs_only_what_was_behind(
    settled: Settled, rounds: int, tried: Counter[str]
) -> None:
    for name in settled.disk.files():
        size = len(settled.bytes_of(name))
        first = PAGE if name == KEYS else 0  # shorter, neither of its two copies is left
        for at in range(first, size, settled.step(CUT_EVERY_BYTES, rounds)):
            harmed = settled.harmed(damage.cut, name, at)
            touched = settled.within(name, at, size)
            wrong = verdict(settled, harmed, name, touched)
            assert wrong == [], f"{name}: cut at {at}"
            tried["files cut short"] += 1


def test_lost_file_costs_only_what_it_held(settled: Settled, tried: Counter[str]) -> None:
    for name in block_names(settled.disk):
        harmed = settled.harmed(damage.lose, name)
        touched = settled.within(name, 0, len(settled.bytes_of(name)))
        wrong = verdict(settled, harmed, name, touched)
        assert wrong == [], name
        tried["files lost"] += 1


def test_without_its_keys_store_is_refused_and_nothing_is_touched() -> None:
    settled = Settled.make(STORES["encrypted"])
    harmed = settled.harmed(damage.lose, KEYS)
    before = {name: harmed.read_small(name, FILE_BYTES_MAX) for name in harmed.files()}
    with pytest.raises(StoreError):
        opened(harmed, settled.options)
    assert {name: harmed.read_small(name, FILE_BYTES_MAX) for name in harmed.files()} == before
