"""The random life of a journal, beside a model, and the judge of what a power cut leaves of it.

The life does what a server would: it appends entries of several groups, syncs or only writes, keeps
a checkpoint of each group in files of its own, and tells the journal once that is durable. It
erases, forgets and cuts, is killed and opened again. An entry is a number; the state of a group is
the sum of its entries, so an entry that is lost or applied twice shows.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final

from models.journal import JournalModel
from penstock.store.errors import NotFound, StoreError
from penstock.store.io.slots import SlotFile, state_key
from penstock.store.journal.journal import Journal
from penstock.store.journal.journal_types import ERASE_NS, JournalFull
from penstock.testing.sim_files import Choice, Lose

if TYPE_CHECKING:
    from penstock.store.io.disk import Disk
    from penstock.testing.sim_disk import SimDisk

INCARNATION: Final = 77
SEGMENT_BYTES: Final = 6 * 4096
SEGMENTS_MAX: Final = 6
GROUPS: Final = 4
STEP_NS: Final = 400_000_000
FILE_BYTES_MAX: Final = 1 << 30
BLOCKS: Final = "blocks"
_CHECKPOINT: Final = struct.Struct("<QQ")
_NUMBER: Final = struct.Struct("<Q")


def opened(disk: Disk, options: dict[str, Any], now_ns: int = 0) -> Journal:
    given = {"segment_bytes": SEGMENT_BYTES, "segments_max": SEGMENTS_MAX, **options}
    return Journal.open(
        disk, incarnation=INCARNATION, now_ns=now_ns, noise=lambda n: b"\xa5" * n, **given
    )


def entry_data(chance: Random, group: int, index: int) -> bytes:
    """A number, a text that no other entry has, and some bytes."""
    number = chance.randrange(1, 1 << 32)
    text = b"<%d.%d.%08x>" % (group, index, number)
    return _NUMBER.pack(number) + text + bytes(chance.choice((0, 5, 200, 3000, 9000)))


def number_of(data: bytes) -> int:
    value: int = _NUMBER.unpack_from(data)[0]
    return value


class Checkpoints:
    """The data of the groups elsewhere: for each the last index that is in its sum."""

    def __init__(self, disk: Disk) -> None:
        if BLOCKS not in disk.directories():
            disk.mkdir(BLOCKS)
            disk.sync_dir()
        self.disk = disk.subdir(BLOCKS)

    def read(self, group: int) -> tuple[int, int]:
        try:
            slots, reading = SlotFile.open(self.disk, f"{group}", state_key("test", group))
        except NotFound:
            return 0, 0
        slots.close()
        index, total = _CHECKPOINT.unpack(reading.value)
        return index, total

    def write(self, group: int, index: int, total: int) -> None:
        value, key = _CHECKPOINT.pack(index, total), state_key("test", group)
        try:
            slots, _ = SlotFile.open(self.disk, f"{group}", key)
        except NotFound:
            slots = SlotFile.create(self.disk, f"{group}", key, value)
        else:
            slots.write(value)
        slots.close()


@dataclass
class Epoch:
    """What was done from one opening to the next: operations and the turn that has them."""

    ops: list[tuple[int, tuple[Any, ...]]] = field(default_factory=list)
    models: dict[int, JournalModel] = field(default_factory=dict)

    def model(self, turn: int) -> JournalModel:
        """What the journal holds after a turn."""
        if turn not in self.models:
            model = self.models[turn] = JournalModel()
            for at, op in self.ops:
                if at <= turn:
                    model.apply(*op)
        return self.models[turn]


class JournalLife:
    """A journal on a disk and its model. `seed` decides everything."""

    def __init__(self, disk: Disk, seed: int, options: dict[str, Any]) -> None:
        self.note = getattr(disk, "mark", lambda _value: None)
        self.disk, self.options, self.chance = disk, options, Random(seed)
        self.now_ns = 1
        self.epochs = [Epoch()]
        self.groups = list(range(1, GROUPS + 1))
        self.next_group = GROUPS + 1
        self.secrets: list[bytes] = []
        """Texts of which the last bytes may still be in the files."""
        self.erased: list[bytes] = []
        self.checkpoints = Checkpoints(disk)
        self.journal = opened(disk, options, self.now_ns)
        self._noted()

    def _noted(self, marks: int = 0) -> None:
        written = self.journal.turn + marks
        now = (len(self.epochs) - 1, self.journal.durable_turn, written)
        self.marks = {"life": now, "erased": len(self.erased)}
        for mark in self.marks.items():
            self.note(mark)

    @property
    def segments_begun(self) -> int:
        return self.journal._pool.number

    def live(self, steps: int) -> None:
        names, weights = zip(*_LIKELY, strict=True)
        for name in self.chance.choices(names, weights, k=steps):
            self.now_ns += self.chance.randrange(STEP_NS)
            getattr(self, f"_{name}")()
            self._noted()

    # -- one call after the other

    def _did(self, *op: Any) -> None:
        epoch = self.epochs[-1]
        epoch.ops.append((self.journal.turn, op))
        epoch.models.clear()

    def _append(self, *, during_sync: bool = False) -> None:
        group = self.chance.choice(self.groups)
        index = self.journal.span(group)[1] or self.checkpoints.read(group)[0] + 1
        data = entry_data(self.chance, group, index)
        term = self.chance.randrange(4)
        try:
            self.journal.append_entry(group, index, data, term=term, kind=16 + term)
        except JournalFull:
            if not during_sync:
                self._make_room()
            return
        self._did("entry", group, index, term, 16 + term, data)

    def _state(self) -> None:
        group = self.chance.choice(self.groups)
        state = b"state %d" % self.chance.randrange(10**6)
        try:
            self.journal.put_state(group, state)
        except JournalFull:
            return
        self._did("state", group, state)

    def _cut(self) -> None:
        group = self.chance.choice(self.groups)
        first, stop = self.journal.span(group)
        first = max(first, self.checkpoints.read(group)[0] + 1)
        if first < stop:
            index = self.chance.randrange(first, stop)
            self.journal.cut(group, index)
            self._did("cut", group, index)

    def _forget(self) -> None:
        group = self.chance.choice(self.groups)
        if group in self.journal.groups():
            self.journal.forget(group)
            self._did("forget", group)
        self.groups.remove(group)
        self.groups.append(self.next_group)
        self.next_group += 1

    def _sync(self, *, write_only: bool = False) -> None:
        work = self.journal.pending_sync(self.now_ns, write_only=write_only)
        if work is None:
            return
        self._noted()
        if self.chance.random() < 0.3:
            self._append(during_sync=True)
        work.run()
        if self.chance.random() < 0.3:
            self._append(during_sync=True)
        self.journal.synced(work)

    def _write(self) -> None:
        self._sync(write_only=True)

    def _upkeep(self) -> None:
        work = self.journal.pending_upkeep()
        if work is not None:
            work.run()
            self.journal.kept_up(work)
        if self.journal.is_erased:
            self.erased += self.secrets
            self.secrets = []

    def _checkpoint(self) -> None:
        held = self.journal.holding_back(self.now_ns)
        self.checkpoint(self.chance.choice(held or self.groups))

    def checkpoint(self, group: int) -> None:
        """Write the durable entries of a group elsewhere, then tell the journal."""
        index, total = self.checkpoints.read(group)
        durable = self.epochs[-1].model(self.journal.durable_turn).entries(group)
        still = self.epochs[-1].model(self.journal.turn).entries(group)
        for at in sorted(durable):
            if at > index and still.get(at) == durable[at]:
                index, total = at, total + number_of(durable[at][2])
        if group in self.journal.groups():
            self._checkpointed(group, index, total)

    def _checkpointed(self, group: int, index: int, total: int) -> None:
        self.checkpoints.write(group, index, total)
        self.journal.checkpointed(group, index)

    def _erase(self) -> None:
        group = self.chance.choice(self.groups)
        self._sync()
        self.checkpoint(group)
        index = self.checkpoints.read(group)[0]
        entries = self.epochs[-1].model(self.journal.durable_turn).entries(group)
        if self.journal.span(group)[0] > index:
            self.secrets += [
                data[8:].partition(b">")[0] for at, (_, _, data) in entries.items() if at <= index
            ]
        self.journal.erase(group, self.now_ns)

    def _make_room(self) -> None:
        """Free segments; that this always works is part of what is tested."""
        for _ in range(100):
            self.now_ns += ERASE_NS
            for group in self.journal.holding_back(self.now_ns):
                self.checkpoint(group)
            self._sync_all()
            self._upkeep()
            if self.journal.segments_used <= SEGMENTS_MAX // 2:
                return
        raise AssertionError(f"{self.journal.segments_used} segments stay in use")

    def _sync_all(self) -> None:
        work = self.journal.pending_sync(self.now_ns)
        if work is not None:
            self._noted()
            work.run()
            self.journal.synced(work)

    def _reopen(self) -> None:
        if self.chance.random() < 0.5:
            self._noted(marks=2)
            self.journal.close(self.now_ns)
        self.journal = opened(self.disk, self.options, self.now_ns)
        assert self.journal.recovery.is_clean, self.journal.recovery
        turn = self.journal.recovery.turn
        self.epochs.append(Epoch([op for op in self.epochs[-1].ops if op[0] <= turn]))


_LIKELY: Final = (
    ("append", 50),
    ("state", 5),
    ("cut", 2),
    ("forget", 1),
    ("sync", 25),
    ("write", 6),
    ("upkeep", 10),
    ("checkpoint", 12),
    ("erase", 1),
    ("reopen", 2),
)


# -- the judge


def judged(
    life: JournalLife, disk: SimDisk, marks: dict[str, Any], *, plain: bool = True
) -> list[str]:
    """What is wrong with the disk that a power cut left."""
    at, durable, written = marks.get("life", (0, 0, 1))
    try:
        journal = opened(disk, life.options, life.now_ns)
    except StoreError as error:
        return [f"does not open: {error!r}"]
    wrong = [] if journal.recovery.is_clean else [f"is called damaged: {journal.recovery}"]
    turn = journal.recovery.turn
    if not durable <= turn <= written:
        wrong.append(f"ends with turn {turn}, promised {durable}, written {written}")
    wrong += contents_wrong(disk, journal, life.epochs[at].model(turn))
    if plain:
        erased = life.erased[: marks.get("erased", 0)]
        wrong += still_there(disk, erased)
    return wrong or goes_on(life, disk)


def contents_wrong(disk: Disk, journal: Journal, model: JournalModel) -> list[str]:
    """What the groups have that the model does not, or the other way round."""
    checkpoints = Checkpoints(disk)
    wrong = []
    sums = {group: checkpoints.read(group) for group in model.groups()}
    for group, entry in ((one.group, one.entry) for one in journal.replay()):
        expected = model.entries(group).get(entry.index)
        if expected != (entry.term, entry.kind, entry.data):
            wrong.append(f"{group}: entry {entry.index} is not what was written")
            continue
        index, total = sums[group]
        if follows(entry.index, index):
            sums[group] = entry.index, total + number_of(entry.data)
    for group in model.groups():
        total = sum(number_of(data) for _, _, data in model.entries(group).values())
        if sums[group][1] != total:
            last = max(model.entries(group), default=0)
            wrong.append(f"{group}: ends at {sums[group]}, the model at {(last, total)}")
        if journal.state(group) != model.state(group):
            wrong.append(f"{group}: state {journal.state(group)!r}, not {model.state(group)!r}")
    return wrong


def follows(index: int, applied: int) -> bool:
    """Whether an entry is to be applied: once."""
    return index == applied + 1


def still_there(disk: SimDisk, secrets: list[bytes]) -> list[str]:
    if not secrets:
        return []
    files = [disk.read_small(n, FILE_BYTES_MAX) for n in disk.files() if n.endswith(".seg")]
    return [f"{one!r} was erased" for one in secrets if any(one in file for file in files)]


def held(journal: Journal) -> list[Any]:
    spans = {group: journal.span(group) for group in journal.groups()}
    states = {group: journal.state(group) for group in journal.groups()}
    return [journal.recovery.turn, spans, states, list(journal.replay())]


def goes_on(life: JournalLife, disk: SimDisk) -> list[str]:
    """Opening again finds the same; then one more turn, synced, and the power goes again."""
    first = held(opened(disk.crash(Choice()), life.options, life.now_ns))
    journal = opened(disk.crash(Lose()), life.options, life.now_ns)
    if held(journal) != first:
        return ["the second opening finds something else"]
    again = disk.crash(Lose())
    journal = opened(again, life.options, life.now_ns)
    try:
        journal.append_entry(10**6, 1, b"more")
    except JournalFull:
        return []
    work = journal.pending_sync(life.now_ns)
    assert work is not None
    work.run()
    journal.synced(work)
    after = opened(again.crash(Lose()), life.options, life.now_ns)
    if not after.recovery.is_clean:
        return [f"went on, and is called damaged: {after.recovery}"]
    if after.recovery.turn != first[0] + 1 or after.entries(10**6, 1, 2, 9)[0].data != b"more":
        return [f"went on from {first[0]}, and the next cut left {after.recovery}"]
    if [one for one in after.replay() if one.group != 10**6] != first[3]:
        return ["went on, and the next cut left something else"]
    return []
