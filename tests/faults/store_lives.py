"""The random life of a file store, beside the model that receives the same calls.

A life appends, removes, erases, purges, truncates, skips, expires and changes limits; it syncs as
the edge does, with other calls between taking the work and its return; it closes and opens, and it
dies like a killed process and is opened again. `versions` keeps what the model held after every
call, and `durable` the last version the store has promised to keep, so that whatever is recovered
later can be held against all that could rightly be there.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from models.store import StoreModel
from penstock.store.contract import TTL_NEVER, Appended, Limits
from penstock.store.errors import StoreError
from penstock.store.filestore import FileStore
from support.files import warmed

if TYPE_CHECKING:
    from models.store import Kept
    from penstock.store.contract import Work
    from penstock.store.io.disk import Disk

INCARNATION = 9
BLOCK_BYTES = 700
SECOND = 1_000_000_000
START_NS = 50 * SECOND
SUBJECTS = ("a", "b", "a.b", "a.c", "b.c.d", "long." * 12 + "x")
HEADER = b"NATS/1.0\r\nK: v\r\n\r\n"
SECRET_BYTES = 24
"""A payload at least this long names its message, so that it can be looked for on the disk."""

CHANGES = frozenset(("open", "create", "pwrite", "fdatasync", "truncate", "unlink", "sync_dir"))

Held: TypeAlias = "dict[int, Kept]"


@dataclass(frozen=True)
class Version:
    """What the store should hold after a call."""

    kept: Held
    last_seq: int
    erased: frozenset[bytes]
    visible_seq: int = 0
    """Up to where a reader could have read."""


class Killed(BaseException):
    """The process was killed, in the middle of a step."""


class Mortal:
    """Passes calls on to a disk until `left` of them are made: then the process is killed."""

    def __init__(self, disk: Disk) -> None:
        self.disk = disk
        self.left: int | None = None

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.disk, name)
        if self.left is None or name not in CHANGES:
            return call
        if self.left == 0:
            raise Killed
        self.left -= 1
        return call


def opened(disk: Disk, options: dict[str, Any], limits: Limits | None = None) -> FileStore:
    """The store of a disk, made or found."""
    given = {"block_bytes": BLOCK_BYTES, **options}
    return FileStore.open(
        disk, limits=limits, incarnation=INCARNATION, noise=lambda n: b"\xa5" * n, **given
    )


class Life:
    """A store on a disk, its model, and what happened. `seed` decides everything."""

    def __init__(self, disk: Disk, seed: int, options: dict[str, Any]) -> None:
        self.notes = getattr(disk, "mark", lambda _value: None)
        self.mortal = Mortal(disk)
        self.disk: Any = self.mortal
        self.chance = Random(seed)
        self.options = options
        self.model = StoreModel()
        self.now_ns = START_NS
        self.erased: frozenset[bytes] = frozenset()
        self.versions = [Version({}, 0, self.erased)]
        self.durable = 0
        self.written = 0
        self.working = False
        """A sync is out, or has failed."""
        self.store = opened(self.disk, options)

    def _version(self) -> Version:
        seen = min(self.store.visible_seq, self.model.last_seq)
        return Version(dict(self.model.kept), self.model.last_seq, self.erased, seen)

    # -- one call after the other

    def live(self, steps: int) -> None:
        """So many calls; StoreError is raised to the step that made the disk fail."""
        names, weights = zip(*_LIKELY, strict=True)
        for name in self.chance.choices(names, weights, k=steps):
            getattr(self, f"_{name}")()

    def both(self, name: str, *args: Any, **named: Any) -> Any:
        """A call on the store and the model, and the version after it."""
        answer = warmed(self.store, lambda: getattr(self.store, name)(*args, **named))
        expected = getattr(self.model, name)(*args, **named)
        if isinstance(expected, Appended):
            assert answer.seq == expected.seq
        self._note()
        return answer

    def _note(self) -> None:
        self.versions.append(self._version())
        self.notes(("did", len(self.versions) - 1))

    def promised(self, version: int) -> None:
        """From now on a power cut may not take this version back."""
        self.durable = version
        self.notes(("durable", version))

    def victim(self) -> int:
        live = self.model.live() or [0]
        return self.chance.choice(live)

    def place(self) -> int:
        low = max(self.model.first_seq - 2, 0)
        return self.chance.randrange(low, self.model.last_seq + 3)

    def _append(self) -> None:
        for _ in range(self.chance.choice((1, 1, 2, 6))):
            self.now_ns += self.chance.choice((0, 1, SECOND // 3))
            self.written += 1
            wanted = self.chance.choice((0, 5, SECRET_BYTES, 100, 900))
            payload = b"<%06d>" % self.written * (wanted // 8)
            gap = self.chance.choice((0, 0, 0, 0, 0, 7))
            self.both(
                "append",
                self.chance.choice(SUBJECTS),
                self.chance.choice((b"", b"", HEADER)),
                payload,
                self.now_ns,
                seq=self.model.last_seq + 1 + gap if gap else None,
                ttl_ns=self.chance.choice((0, 0, 0, TTL_NEVER, SECOND, 9 * SECOND)),
            )

    def _remove(self) -> None:
        self.both("remove", self.victim())

    def _erase(self) -> None:
        victim = self.victim()
        kept = self.model.kept.get(victim)
        if kept is not None and len(kept.record.payload) >= SECRET_BYTES:
            self.erased |= {kept.record.payload}
        self.both("erase", victim)

    def _purge(self) -> None:
        if self.chance.random() < 0.5:
            self.both("purge", subject=self.chance.choice(("a", "a.*", ">")), keep=1)
        else:
            self.both("purge", before_seq=self.place())

    def _truncate(self) -> None:
        last = self.model.last_seq
        self.both("truncate", self.chance.randrange(max(0, last - 6), last + 1))
        self.now_ns = max(self.now_ns, self.model.last_ts_ns)

    def _skip(self) -> None:
        first = self.model.last_seq + 1
        self.both("skip", first, first + self.chance.randrange(9), self.now_ns)

    def _expire(self) -> None:
        self.now_ns += self.chance.choice((0, SECOND, 5 * SECOND))
        self.both("expire", self.now_ns)

    def _set_limits(self) -> None:
        chance = self.chance
        limits = Limits(
            msgs_max=chance.choice((-1, -1, 30)),
            bytes_max=chance.choice((-1, -1, 3000)),
            age_ns_max=chance.choice((0, 0, 8 * SECOND)),
            per_subject_max=chance.choice((-1, -1, 4)),
            discard_new=chance.random() < 0.2,
        )
        self.both("set_limits", limits)

    # -- the edge's part

    def _sync(self) -> None:
        """A group commit; half of the time the store goes on while it runs, if it may."""
        if not self.is_lazy and self.chance.random() < 0.5 and self._commit_shortly():
            return
        work = self.store.pending_sync()
        if work is None:
            return
        covered = len(self.versions) - 1
        if self.chance.random() < 0.5:
            self._append()
        self.run(work)
        self.promised(covered)

    def _write(self) -> None:
        """What the edge does of a lazy store every turn: it is in the files, and not promised."""
        if self.is_lazy and self.chance.random() < 0.5 and self._commit_shortly():
            return
        work = self.store.pending_sync(write_only=True) if self.is_lazy else None
        if work is not None:
            self.run(work)

    def _commit_shortly(self) -> bool:
        """The way of compiled code; whether it was open."""
        self.working = True
        is_done = self.store.appender.commit()
        self.working = False
        if is_done and not self.is_lazy:
            self.promised(len(self.versions) - 1)
        return is_done

    @property
    def is_lazy(self) -> bool:
        return not self.options.get("sync_always", True)

    def _compact(self) -> None:
        """A block is rewritten while the store goes on."""
        work = self.store.pending_compaction()
        if work is None:
            return
        if self.chance.random() < 0.5:
            self._append()
            self._remove()
        try:
            work.run()
        except StoreError as error:
            self.store.compacted(work, error)
        else:
            self.store.compacted(work)

    def run(self, work: Work) -> None:
        self.working = True
        try:
            work.run()
        except StoreError as error:
            self.store.synced(work, error)
            raise
        self.store.synced(work)
        self.working = False

    def _reopen(self) -> None:
        self.store.close()
        self.promised(len(self.versions) - 1)
        self.store = opened(self.disk, self.options, self.model.limits)
        self._note()

    def _die(self) -> None:
        """Killed, perhaps in a sync: what was written can be read again, synced or not."""
        work = self.store.pending_sync()
        self.mortal.left = self.chance.randrange(5)
        with suppress(Killed):
            if work is not None:
                work.run()
        self.mortal.left = None
        self.store = opened(self.disk, self.options)
        self.adopt()
        self.store.set_limits(self.model.limits)
        self.model.set_limits(self.model.limits)
        self._note()

    def adopt(self) -> None:
        """What was never written is lost; from now on the model holds what was found."""
        from faults.verdicts import contents, wrong_with

        faults = wrong_with(self.store, self.versions[self.durable :])
        assert not faults, faults
        known = {kept.record: kept for version in self.versions for kept in version.kept.values()}
        found = contents(self.store)
        self.erased = self.versions[self.durable].erased
        self.model.kept = {seq: known[record] for seq, record in found.items()}
        state = self.store.state()
        self.model.last_seq, self.model.last_ts_ns = state.last_seq, state.last_ts_ns
        self.now_ns = max(self.now_ns, state.last_ts_ns)
        self._note()
        if self.store.durable_seq == state.last_seq:
            self.promised(len(self.versions) - 1)


_LIKELY = (
    ("append", 40),
    ("sync", 22),
    ("remove", 10),
    ("erase", 4),
    ("purge", 3),
    ("truncate", 3),
    ("skip", 3),
    ("expire", 4),
    ("set_limits", 3),
    ("reopen", 3),
    ("die", 3),
    ("write", 10),
    ("compact", 5),
)
