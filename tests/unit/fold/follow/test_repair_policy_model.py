"""Every short history of a bucket and a fold: the fold is right, or says that it cannot be.

The model is a bucket of two keys with few records, which may overwrite, delete, evict, lose
markers, be recreated, be set back to a backup, or stop evicting; an artifact that is exported;
and a fold that comes and goes, and may die in the middle of a repair. Whenever the fold has caught
up it must hold what the log ever said, also what the bucket dropped since. The decisions are the
shipped ones. Each of their guards, left out, must give a history in which the fold is wrong and
says nothing.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import Struct
from msgspec.structs import replace

from penstock.fold.follow import repair_policy
from penstock.fold.follow.repair_policy import (
    ArtifactTrust,
    Fate,
    FoldStart,
    HeldEntry,
    Mode,
    Offer,
    RepairPlan,
)
from penstock.kv.kv_types import LogInfo, Scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEYS = ("a", "b")
SEQ_MAX = 4
LOGS_MAX = 2
STEPS_MAX = 7

#: What a key holds: the log and the sequence of its value; absent keys are not there.
Entries = frozenset[tuple[str, int, int]]
Record = tuple[int, str, bool]


class Log(Struct, frozen=True):
    """A bucket's stream. `said` is the fold of everything it ever said, dropped or not."""

    number: int = 1
    created: int = 1
    last: int = 0
    records: tuple[Record, ...] = ()
    said: Entries = frozenset()
    evicts: bool = False
    tells: bool = False
    floor: int = 0

    @property
    def first(self) -> int:
        return self.records[0][0] if self.records else self.last + 1

    def info(self) -> LogInfo:
        return LogInfo(
            identity=f"KV_b@{self.created}+{self.number}" if self.tells else f"KV_b@{self.created}",
            first_seq=self.first,
            last_seq=self.last,
            evicts_current=self.evicts,
            loss_floor=self.floor if self.tells else None,
        )

    def listed(self) -> set[str]:
        return {key for _, key, is_put in self.records if is_put}

    def written(self, key: str, *, is_put: bool) -> Log:
        seq = self.last + 1
        kept = tuple(record for record in self.records if record[1] != key)
        said = frozenset(one for one in self.said if one[0] != key)
        return replace(
            self,
            last=seq,
            records=(*kept, (seq, key, is_put)),
            said=said | {(key, self.number, seq)} if is_put else said,
        )

    def without(self, seq: int) -> Log:
        left = tuple(one for one in self.records if one[0] != seq)
        return replace(self, records=left, floor=max(self.floor, seq))

    def set_back(self, number: int) -> Log:
        """Restored from a backup, and known to be another log."""
        said = frozenset((key, number, seq) for key, _, seq in self.said)
        is_whole = len(self.records) == self.last
        return replace(self, number=number, said=said, floor=0 if is_whole else self.last)


class Copy(Struct, frozen=True):
    """Entries with a cursor: a fold, an artifact or a backup's idea of them."""

    entries: Entries = frozenset()
    cursor: int = 0
    identity: str = ""
    seen_evicting: bool = False

    def revision(self, key: str) -> int | None:
        return next((seq for name, _, seq in self.entries if name == key), None)


class World(Struct, frozen=True):
    log: Log
    fold: Copy
    artifact: Copy | None = None
    backup: Log | None = None
    is_unaware: bool = False
    """The log was set back, or replaced by one that cannot be told apart, since the fold came."""
    artifact_is_old: bool = False
    """The same, since the artifact was made."""
    refused: bool = False
    told_incomplete: bool = False
    """The fold began again on a bucket that had dropped values, and reported it."""


class Setting(Struct, frozen=True):
    """What does not change in a history."""

    mode: Mode
    has_source: bool
    fold_says: bool = True
    """Whether the fold knows of which log it is."""
    artifact_says: bool = True
    server_tells: bool = False


# -- what the bucket does


def moves(world: World, setting: Setting) -> Iterator[World]:
    log = world.log
    if log.last < SEQ_MAX:
        for key in KEYS:
            yield replace(world, log=log.written(key, is_put=True))
            if key in log.listed():
                yield replace(world, log=log.written(key, is_put=False))
    if log.evicts and log.records:
        yield replace(world, log=log.without(log.first))
    for seq, _, is_put in log.records:
        if not is_put:
            yield replace(world, log=log.without(seq))
    if log.number < LOGS_MAX:
        number = log.number + 1
        anew = Log(number, number, evicts=log.evicts, tells=log.tells)
        yield told_apart(replace(world, log=anew, backup=None), setting)
    if log.evicts:
        yield replace(world, log=replace(log, evicts=False))
    yield from set_back(world, setting)


def set_back(world: World, setting: Setting) -> Iterator[World]:
    log = world.log
    if world.backup is None:
        yield replace(world, backup=log)
    elif world.backup != log and not log.tells:
        yield behind_their_backs(replace(world, log=world.backup))
    elif world.backup != log and log.number < LOGS_MAX:
        yield told_apart(replace(world, log=world.backup.set_back(log.number + 1)), setting)


def told_apart(world: World, setting: Setting) -> World:
    """The log is another one, as its identity shows."""
    unaware = behind_their_backs(world)
    return replace(
        world,
        is_unaware=unaware.is_unaware and not setting.fold_says,
        artifact_is_old=unaware.artifact_is_old and not setting.artifact_says,
    )


def behind_their_backs(world: World) -> World:
    """Only the numbers tell that the log is another one."""
    return replace(world, is_unaware=True, artifact_is_old=world.artifact is not None)


def exported(world: World, setting: Setting) -> World:
    """An artifact of a fold that was always there."""
    log = world.log
    identity = log.info().identity if setting.artifact_says else ""
    artifact = Copy(log.said, log.last, identity, log.evicts)
    return replace(world, artifact=artifact, artifact_is_old=False)


# -- what the fold does


def came_back(world: World, setting: Setting) -> Iterator[World]:
    """The fold after it has caught up; and, if it repairs, after it died on the way."""
    log, fold = world.log, world.fold
    info = log.info()
    held = HeldEntry(fold.cursor, not fold.entries, fold.identity, fold.seen_evicting)
    start = repair_policy.how_to_start(held, info)
    if start is FoldStart.DELTA:
        yield delta(world, setting, fold)
        return
    can_restore = setting.has_source and setting.mode in (Mode.AUTO, Mode.RESTORE)
    trust = repair_policy.trust_in_listing(held, info)
    is_complete = trust is not ArtifactTrust.FALSE
    if start is FoldStart.RELIST and (is_complete or not can_restore):
        told = world.told_incomplete or not is_complete
        yield relisted(replace(world, told_incomplete=told), setting, fold)
        return
    plan = repair_policy.plan_repair(setting.mode, trust, has_source=setting.has_source)
    if plan is RepairPlan.RESTORE or start is FoldStart.RELIST:
        yield from restored(world, setting, start, held)
    elif plan is RepairPlan.DIFF:
        if start is FoldStart.RESET:
            fold = forgotten(fold, held, world)
            yield replace(world, fold=fold)
        gone = {key for key in KEYS if key not in log.listed()}
        fold = replace(fold, entries=frozenset(one for one in fold.entries if one[0] not in gone))
        yield replace(world, fold=fold)
        yield relisted(world, setting, fold)
    else:
        yield replace(world, refused=True)


def delta(world: World, setting: Setting, fold: Copy) -> World:
    fold = applied(fold, [one for one in world.log.records if one[0] > fold.cursor], world)
    return caught_up(world, setting, fold)


def relisted(world: World, setting: Setting, fold: Copy) -> World:
    return caught_up(world, setting, applied(fold, world.log.records, world))


def restored(world: World, setting: Setting, start: FoldStart, held: HeldEntry) -> Iterator[World]:
    log, fold, artifact = world.log, world.fold, world.artifact
    if artifact is None:
        yield replace(world, refused=True)
        return
    offer = Offer(artifact.cursor, artifact.identity, Scope.all())
    if repair_policy.why_not(offer, start, held, Scope.all(), log.info()):
        yield replace(world, refused=True)
        return
    if start is FoldStart.RESET:
        fold = forgotten(fold, held, world)
        yield replace(world, fold=fold)
    was_reset = start in (FoldStart.RESET, FoldStart.UNANCHORED)
    entries = set(fold.entries)
    for key in KEYS:
        verdict = repair_policy.fate(
            fold.revision(key),
            artifact.revision(key),
            is_listed=key in log.listed(),
            was_reset=was_reset,
        )
        if verdict is not Fate.KEEP:
            entries = {one for one in entries if one[0] != key}
        if verdict is Fate.TAKE:
            entries |= {one for one in artifact.entries if one[0] == key}
        yield replace(world, fold=replace(fold, entries=frozenset(entries)))
    memo = fold.seen_evicting or artifact.seen_evicting
    fold = Copy(frozenset(entries), artifact.cursor, fold.identity, memo)
    yield delta(world, setting, fold)


def forgotten(fold: Copy, held: HeldEntry, world: World) -> Copy:
    identity = repair_policy.identity_after_reset(held, world.log.info())
    return replace(fold, cursor=0, identity=identity)


def applied(fold: Copy, records: Any, world: World) -> Copy:
    entries, number = set(fold.entries), world.log.number
    cursor = fold.cursor
    for seq, key, is_put in records:
        entries = {one for one in entries if one[0] != key}
        if is_put:
            entries.add((key, number, seq))
        cursor = max(cursor, seq)
    return replace(fold, entries=frozenset(entries), cursor=cursor)


def caught_up(world: World, setting: Setting, fold: Copy) -> World:
    info = world.log.info()
    fold = replace(
        fold,
        identity=info.identity if setting.fold_says else "",
        seen_evicting=fold.seen_evicting or info.evicts_current,
        cursor=info.last_seq if world.log.tells else fold.cursor,
    )
    return replace(world, fold=fold, refused=False)


# -- the search


def is_wrong(world: World) -> bool:
    """The fold believes to be up to date and is not; what it warned of does not count."""
    fold, log = world.fold, world.log
    if world.refused or world.told_incomplete or fold.cursor < log.last:
        return False
    return fold.entries != log.said


def is_told_apart(world: World) -> bool:
    """A log set back and written on beyond a cursor is not known from the one before."""
    if world.is_unaware and world.fold.identity in ("", world.log.info().identity):
        return world.log.last < world.fold.cursor
    artifact = world.artifact
    return not world.artifact_is_old or artifact is None or world.log.last < artifact.cursor


def counterexample(setting: Setting, *, evicts: bool) -> list[World] | None:
    """A shortest history at the end of which the fold is wrong without a word."""
    log = Log(evicts=evicts, tells=setting.server_tells).written("a", is_put=True)
    begun = caught_up(World(log, Copy()), setting, applied(Copy(), log.records, World(log, Copy())))
    before: dict[World, World | None] = {begun: None}
    waiting = deque([(begun, 0)])
    while waiting:
        world, steps = waiting.popleft()
        found = [*came_back(world, setting)]
        if found and is_wrong(found[-1]):
            return [*history(world, before), found[-1]]
        if steps == STEPS_MAX:
            continue
        found = [one if one.refused else replace(one, is_unaware=False) for one in found]
        for one in (*moves(world, setting), *found, exported(world, setting)):
            if one not in before and is_told_apart(one) and not one.told_incomplete:
                before[one] = world
                waiting.append((one, steps + 1))
    return None


def history(world: World | None, before: dict[World, World | None]) -> list[World]:
    told: list[World] = []
    while world is not None:
        told.append(world)
        world = before[world]
    return told[::-1]


SETTINGS = {
    "by itself": Setting(Mode.AUTO, has_source=False),
    "by itself, with artifacts": Setting(Mode.AUTO, has_source=True),
    "by itself, nothing is known of logs": Setting(Mode.AUTO, True, False, False),
    "by itself, nothing is known of artifacts": Setting(Mode.AUTO, True, True, False),
    "by listing": Setting(Mode.RELIST, has_source=False),
    "from artifacts": Setting(Mode.RESTORE, has_source=True),
    "by itself, losses are reported": Setting(Mode.AUTO, has_source=False, server_tells=True),
    "by itself, with artifacts, losses are reported": Setting(Mode.AUTO, True, server_tells=True),
    "losses are reported, nothing is known of logs": Setting(Mode.AUTO, True, False, False, True),
}


@pytest.mark.parametrize("evicts", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_fold_is_right_or_reports_that_it_is_not(name: str, evicts: bool) -> None:
    found = counterexample(SETTINGS[name], evicts=evicts)
    assert found is None, "\n".join(map(str, found or []))


# -- guards left out

how_to_start, trust_in_listing = repair_policy.how_to_start, repair_policy.trust_in_listing
plan_repair, why_not, fate = repair_policy.plan_repair, repair_policy.why_not, repair_policy.fate


def in_place_of(start: FoldStart, other: FoldStart) -> Callable[[HeldEntry, LogInfo], FoldStart]:
    def mutant(held: HeldEntry, log: LogInfo) -> FoldStart:
        found = how_to_start(held, log)
        return other if found is start else found

    return mutant


def without_identity(held: HeldEntry, log: LogInfo) -> FoldStart:
    return how_to_start(replace(held, identity=""), log)


def without_the_end(held: HeldEntry, log: LogInfo) -> FoldStart:
    far = LogInfo(identity=log.identity, first_seq=log.first_seq, last_seq=99, evicts_current=False)
    return how_to_start(held, far)


def accepting(reason: str) -> Callable[..., str]:
    """An artifact is taken although there was this reason against it."""

    def mutant(*args: Any) -> str:
        found = why_not(*args)
        return "" if reason in found else found

    return mutant


def listing_always_true(held: HeldEntry, log: LogInfo) -> ArtifactTrust:
    return ArtifactTrust.TRUE


def without_memo(held: HeldEntry, log: LogInfo) -> ArtifactTrust:
    return trust_in_listing(replace(held, seen_evicting=False), log)


def never_refusing(mode: Mode, trust: ArtifactTrust, **more: Any) -> RepairPlan:
    plan = plan_repair(mode, trust, **more)
    return RepairPlan.DIFF if plan is RepairPlan.REFUSE else plan


def never_deleting(local: int | None, offered: int | None, **more: Any) -> Fate:
    found = fate(local, offered, **more)
    return Fate.KEEP if found is Fate.DELETE else found


def comparing_across_logs(local: int | None, offered: int | None, **more: Any) -> Fate:
    return fate(local, offered, **more | {"was_reset": False})


ALONE, WITH_ARTIFACTS, FROM_ARTIFACTS = "by itself", "by itself, with artifacts", "from artifacts"
NOTHING_SAYS, ARTIFACTS_SAY_NOTHING = (
    "by itself, nothing is known of logs",
    "by itself, nothing is known of artifacts",
)
TOLD = "by itself, losses are reported"
#: What is replaced by what, and where that shows: in which setting, and whether the bucket evicts.
MUTANTS: dict[str, tuple[str, Callable[..., Any], str, bool]] = {
    "the window is not looked at": (
        *("how_to_start", in_place_of(FoldStart.EXPIRED, FoldStart.DELTA)),
        *(ALONE, False),
    ),
    "an expired fold is only re-listed": (
        *("how_to_start", in_place_of(FoldStart.EXPIRED, FoldStart.RELIST)),
        *(ALONE, False),
    ),
    "the window is one too wide": (
        *("is_window_intact", lambda log, revision, **_: log.first_seq <= revision + 2),
        *(ALONE, True),
    ),
    "where the log begins is taken for what it lost": (
        *("is_window_intact", lambda log, revision, **_: log.first_seq <= revision + 1),
        *(TOLD, False),
    ),
    "the incarnation is not looked at": (
        *("is_same_log", lambda held, now: held.partition("+")[0] == now.partition("+")[0]),
        *(TOLD, False),
    ),
    "the identity is not looked at": ("how_to_start", without_identity, ALONE, True),
    "a cursor ahead of the log is resumed": ("how_to_start", without_the_end, NOTHING_SAYS, True),
    "data without a cursor is taken for nothing": (
        *("how_to_start", in_place_of(FoldStart.UNANCHORED, FoldStart.RELIST)),
        *(ALONE, True),
    ),
    "a listing is always the truth": ("trust_in_listing", listing_always_true, ALONE, True),
    "what was seen evicting is forgotten": ("trust_in_listing", without_memo, ALONE, True),
    "a repair is never refused": ("plan_repair", never_refusing, ALONE, True),
    "an artifact of another log is taken": (
        *("why_not", accepting("another log")),
        *(FROM_ARTIFACTS, True),
    ),
    "an artifact is taken after a set-back": (
        *("why_not", accepting("set back")),
        *(FROM_ARTIFACTS, False),
    ),
    "an artifact for data of an unknown log is taken": (
        *("why_not", accepting("is not known")),
        *(NOTHING_SAYS, True),
    ),
    "an artifact of no log is taken after a reset": (
        *("why_not", accepting("does not say")),
        *(ARTIFACTS_SAY_NOTHING, True),
    ),
    "an artifact beyond the end is taken": (
        *("why_not", accepting("beyond")),
        *(FROM_ARTIFACTS, False),
    ),
    "a stale artifact is taken": (
        *("why_not", accepting("behind its cursor")),
        *(FROM_ARTIFACTS, False),
    ),
    "a restore deletes nothing": ("fate", never_deleting, WITH_ARTIFACTS, True),
    "a restore compares revisions of two logs": (
        *("fate", comparing_across_logs),
        *(FROM_ARTIFACTS, False),
    ),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_guard_left_out_lets_fold_be_wrong(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    name, guard, setting, evicts = MUTANTS[mutant]
    monkeypatch.setattr(repair_policy, name, guard)
    assert counterexample(SETTINGS[setting], evicts=evicts) is not None
