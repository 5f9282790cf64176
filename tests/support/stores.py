"""The stores that follow the contract, and how a test drives one as the edge would.

`KINDS` has a line for every store; that line is all it takes to join the contract suite and the
property test. A kind says how to make a store: `MemStore(limits, first_seq=...)`, or, on a disk,
`FileStore.open(disk, limits=..., incarnation=..., first_seq=..., noise=..., **options)`, which
must give the same store back when called again on the same disk. What cannot be imported, or an
option `open` does not know, makes the kind absent: one skipped test says so and why.

`Driven` is what tests hold. It brings in what is cold and, as its kind wants, syncs and then
closes and opens, or cuts the power, after every call that changes something.
"""

from __future__ import annotations

import enum
import importlib
import inspect
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from models.store import StoreModel, file_size, memory_size
from penstock.store.contract import Cold, Limits, Removed
from penstock.store.format.encryption import ServerKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from penstock.store.contract import Store

INCARNATION = 7
FETCHES_MAX = 3
CHANGES = frozenset(
    (
        "append",
        "append_packed",
        "skip",
        "set_limits",
        "change_limits",
        "trim",
        "remove",
        "erase",
        "purge",
        "purge_slice",
        "truncate",
        "expire",
    )
)


class Absent(Exception):
    """There is no such store yet."""


class Step(enum.Enum):
    """What happens after a call that changes something."""

    NOTHING = enum.auto()
    SYNC = enum.auto()
    REOPEN = enum.auto()
    POWER_CUT = enum.auto()


class Place:
    """Where a store lives: created by the first `open`, found again by the next."""

    counts_as_file = True
    on_disk = False

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options

    def open(self, limits: Limits, first_seq: int) -> Store:
        raise NotImplementedError

    def cut_power(self) -> None:
        """Only what was synced remains."""


class ModelPlace(Place):
    def open(self, limits: Limits, first_seq: int) -> Store:
        return StoreModel(limits, first_seq=first_seq)


class MemoryPlace(Place):
    counts_as_file = False

    def open(self, limits: Limits, first_seq: int) -> Store:
        made: Store = named("memstore", "MemStore")(limits, first_seq=first_seq, **self.options)
        return made


class DiskPlace(Place):
    on_disk = True

    def __init__(self, options: dict[str, Any]) -> None:
        super().__init__(options)
        self.opener = named("filestore", "FileStore").open
        known = inspect.signature(self.opener).parameters
        missing = [name for name in options if name not in known]
        if missing:
            raise Absent(f"FileStore.open does not know {', '.join(missing)}")
        self.disk = _module("penstock.testing.sim_disk").SimDisk()

    def open(self, limits: Limits, first_seq: int) -> Store:
        opened: Store = self.opener(
            self.disk,
            limits=limits,
            incarnation=INCARNATION,
            first_seq=first_seq,
            noise=lambda n: b"\xa5" * n,
            **self.options,
        )
        return opened

    def cut_power(self) -> None:
        self.disk = self.disk.crash(_module("penstock.testing.sim_files").Lose())


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        raise Absent(str(missing)) from missing


def named(module: str, name: str) -> Any:
    """A class of `penstock.store`."""
    found = getattr(_module(f"penstock.store.{module}"), name, None)
    if found is None:
        raise Absent(f"penstock.store.{module} has no {name}")
    return found


@dataclass(frozen=True)
class Kind:
    """A store of `KINDS`. Options are made late, since they may need what is absent."""

    place: type[Place]
    step: Step = Step.NOTHING
    options: Callable[[], dict[str, Any]] = field(default=dict)
    lazy: bool = False
    """What is appended is seen before it is durable."""
    compacts: bool = False
    """Blocks are rewritten whenever they could be."""
    short: bool = False
    """Commits take the short way where it is open."""

    def make(self, limits: Limits | None = None, *, first_seq: int = 1) -> Driven:
        driven = Driven(self.place(self.options()), limits or Limits(), first_seq, self.step)
        driven.lazy, driven.compacts, driven.short = self.lazy, self.compacts, self.short
        return driven

    def absence(self) -> str | None:
        """Why there is no such store; None if there is."""
        try:
            self.make()
        except Absent as reason:
            return str(reason)
        return None


class Make(Protocol):
    """An empty store of one kind."""

    def __call__(self, limits: Limits | None = None, *, first_seq: int = 1) -> Driven: ...


SMALL = 512
"""Bytes of a block: a few messages, so that tests meet the seams."""
SECRET = ServerKey("secret")

KINDS = {
    "model": Kind(ModelPlace),
    "memory": Kind(MemoryPlace),
    "file": Kind(DiskPlace, Step.SYNC),
    "file, small blocks": Kind(DiskPlace, Step.SYNC, lambda: {"block_bytes": SMALL}),
    "file, short way": Kind(DiskPlace, Step.SYNC, short=True),
    "file, small blocks, short way, power cut": Kind(
        DiskPlace, Step.POWER_CUT, lambda: {"block_bytes": SMALL}, short=True
    ),
    "file, compacted, short way": Kind(
        DiskPlace, Step.SYNC, lambda: {"block_bytes": SMALL}, compacts=True, short=True
    ),
    "file, lazy, short way": Kind(
        DiskPlace,
        Step.NOTHING,
        lambda: {"sync_always": False, "block_bytes": SMALL},
        lazy=True,
        short=True,
    ),
    "file, reopened": Kind(DiskPlace, Step.REOPEN),
    "file, small blocks, reopened": Kind(DiskPlace, Step.REOPEN, lambda: {"block_bytes": SMALL}),
    "file, power cut": Kind(DiskPlace, Step.POWER_CUT, lambda: {"block_bytes": SMALL}),
    "file, lazy": Kind(DiskPlace, Step.NOTHING, lambda: {"sync_always": False}, lazy=True),
    "file, lazy, reopened": Kind(
        DiskPlace, Step.REOPEN, lambda: {"sync_always": False, "block_bytes": SMALL}, lazy=True
    ),
    "file, compacted": Kind(DiskPlace, Step.SYNC, lambda: {"block_bytes": SMALL}, compacts=True),
    "file, compacted, power cut": Kind(
        DiskPlace, Step.POWER_CUT, lambda: {"block_bytes": SMALL}, compacts=True
    ),
    "file, cold": Kind(DiskPlace, Step.SYNC, lambda: {"block_bytes": SMALL, "warm_bytes_max": 0}),
    "file, compressed": Kind(
        DiskPlace,
        Step.REOPEN,
        lambda: {
            "block_bytes": SMALL,
            "compression": named("format.compression", "BlockCompression").ZSTD,
        },
        compacts=True,
    ),
    "file, encrypted": Kind(
        DiskPlace,
        Step.REOPEN,
        lambda: {"block_bytes": SMALL, "key": SECRET},
    ),
    "file, encrypted, compacted, cold, power cut": Kind(
        DiskPlace,
        Step.POWER_CUT,
        lambda: {"block_bytes": SMALL, "key": SECRET, "warm_bytes_max": 0},
        compacts=True,
    ),
}


class Driven:
    """A store, called as the edge calls it: the same names, never an answer that is Cold."""

    def __init__(self, place: Place, limits: Limits, first_seq: int, step: Step) -> None:
        self.place = place
        self.step = step
        self.lazy = self.compacts = self.short = False
        self._limits = limits
        self._first_seq = first_seq
        self.store = place.open(limits, first_seq)

    @property
    def size_of(self) -> Callable[[str, bytes, bytes], int]:
        """What a message counts in this store."""
        return file_size if self.place.counts_as_file else memory_size

    @property
    def durable_seq(self) -> int:
        return self.store.durable_seq

    @property
    def visible_seq(self) -> int:
        return self.store.visible_seq

    @property
    def sync_wanted(self) -> bool:
        return self.store.sync_wanted

    @property
    def is_over(self) -> bool:
        return self.store.is_over

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **named_args: Any) -> Any:
            if name in ("set_limits", "change_limits"):
                self._limits = args[0]
            answer = self._warm(lambda: getattr(self.store, name)(*args, **named_args))
            if name in CHANGES:
                self.take_step(self.step)
            return answer

        return call

    def _warm(self, ask: Callable[[], Any]) -> Any:
        answer = ask()
        for _ in range(FETCHES_MAX):
            if not isinstance(answer, Cold):
                return answer
            work = self.store.fetch(answer)
            work.run()
            self.store.fetched(work)
            answer = ask()
        raise AssertionError(f"{answer} is still cold")

    def take_step(self, step: Step) -> None:
        if step is Step.NOTHING:
            if self.short and self.lazy:
                self.store.appender.commit()  # type: ignore[attr-defined]
            if self.lazy and self.store.sync_wanted:
                self._sync()
            return
        self.sync()
        if step is Step.POWER_CUT and self.lazy:
            step = Step.REOPEN  # a cut would leave sequences reserved that the model does not know
        if step is Step.REOPEN:
            self.store.close()
        elif step is Step.POWER_CUT:
            self.place.cut_power()
        if step in (Step.REOPEN, Step.POWER_CUT) and self.place.on_disk:
            self.store = self.place.open(self._limits, self._first_seq)

    def sync(self) -> None:
        self._sync()
        while self.compacts and (work := self.store.pending_compaction()) is not None:
            work.run()
            self.store.compacted(work)
            self._sync()

    def _sync(self) -> None:
        if self.short and not self.lazy:
            self.store.appender.commit()  # type: ignore[attr-defined]
        while (work := self.store.pending_sync()) is not None:
            work.run()
            self.store.synced(work)


def covered(removed: Removed) -> set[int]:
    """Every sequence in the ranges of a removal, which must be ascending and disjoint."""
    last = -1
    seqs: set[int] = set()
    for first, end in removed.seqs:
        assert last < first <= end
        seqs.update(range(first, end + 1))
        last = end
    assert removed.msgs <= len(seqs)
    return seqs
