"""Consumer recovery: computes the state from the content of a consumer's files. Pure, for testing.

Recovery starts at the newest valid checkpoint and applies, in order, every change of its log and of
the next log that follows without a gap. Changes that do not follow are left out and reported: as
cut if nothing shows that they were durable, as lost if a frame shows it. So the result is always a
state that the consumer had, and missing changes lead to redeliveries, never to skipped messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from penstock.jetstream.consumers.state.consumer_deltas import ConsumerState, replay
from penstock.jetstream.consumers.state.delta_log import COPIES, LOG_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jetstream.consumers.state.delta_log import DeltaFrame, LogReading
    from penstock.store.io.slots import SlotReading

STATE_SUFFIX = ".state"
LOG_SUFFIXES = (".log0", ".log1")
"""A log of generation g is in file g % 2."""


class Damage(NamedTuple):
    """A part of a file that differs from what was written and synced."""

    suffix: str
    offset: int
    what: str


class RecoveryReport(NamedTuple):
    """The findings of opening a consumer's files."""

    replayed: int = 0
    """Changes applied from the logs."""
    cut_bytes: int = 0
    """Bytes that are not part of the consecutive frames from the start of their log."""
    cut_changes: int = 0
    """Valid changes that do not follow from the rest, and are not used."""
    torn: int = 0
    """Copies and slots that were incomplete, as an interrupted write leaves them."""
    damage: tuple[Damage, ...] = ()
    lost: tuple[int, int] | None = None
    """First and last number of changes that were durable and are lost."""

    @property
    def cuts(self) -> bool:
        """Return whether something was left out; the logs are then kept aside as found."""
        return bool(self.cut_bytes or self.cut_changes or self.lost)

    @property
    def clean(self) -> bool:
        """Return whether the files had no faults."""
        return not (self.cuts or self.torn or self.damage)


class Recovered(NamedTuple):
    """A state, the number of its last change, and where it came from."""

    state: ConsumerState
    seq: int
    report: RecoveryReport
    log: LogReading | None
    """The log of the newest checkpoint, if it can be continued as it is."""
    backed: bool
    """Whether the same state can be reached without the newest checkpoint."""


def recover(slots: SlotReading, logs: tuple[LogReading | None, LogReading | None]) -> Recovered:
    """Return the state in a consumer's files. Raises MalformedDelta for an invalid checkpoint."""
    state, start = ConsumerState.decode(slots.value)
    by_generation = {log.generation: log for log in logs if log}
    current = by_generation.get(slots.generation)
    following = by_generation.get(slots.generation + 1)
    if following and not following.frames and not following.frames_from:
        following = None  # created for the next checkpoint, not used
    # An even later log has changes that nothing leads to, but shows what was durable.
    later = sorted(g for g in by_generation if g > slots.generation + 1)
    used = [log for log in (current, following) if log] + [by_generation[g] for g in later]
    seq, left_out = _apply(state, start, used)
    durable = max((frame.durable_seq for log in used for frame in _all(log)), default=0)
    damage, torn = _find_damage(slots, logs, durable)
    report = RecoveryReport(
        replayed=seq - start,
        cut_bytes=sum(log.unused_bytes for log in used),
        cut_changes=left_out,
        torn=torn,
        damage=tuple(damage),
        lost=(seq + 1, durable) if durable > seq else None,
    )
    return Recovered(
        state=state,
        seq=seq,
        report=report,
        log=current if report.clean and not following and _is_current(current) else None,
        backed=_backed(slots.older, start, by_generation.get(slots.generation - 1)),
    )


def _is_current(log: LogReading | None) -> bool:
    return log is not None and log.version == LOG_VERSION


def _all(log: LogReading) -> Iterator[DeltaFrame]:
    yield from log.frames
    yield from log.frames_from


def _apply(state: ConsumerState, seq: int, logs: list[LogReading]) -> tuple[int, int]:
    """Apply what follows; return the last number applied, and how many valid changes were left
    out."""
    left_out = 0
    for log in logs:
        for frame in _all(log):
            if frame.last <= seq:
                continue
            if frame.first != seq + 1:
                left_out += len(frame.changes)
                continue
            replay(state, frame.changes)
            seq = frame.last
    return seq, left_out


def _find_damage(
    slots: SlotReading, logs: tuple[LogReading | None, LogReading | None], durable: int
) -> tuple[list[Damage], int]:
    """Return the certain damage, and how many parts may just be incompletely written."""
    damage: list[Damage] = []
    torn = 0
    following = slots.generation + 1
    prepared = any(log and log.generation == following for log in logs)
    for slot, fault in slots.damage:
        # The next log is durable before a checkpoint is written to this slot.
        if prepared:
            torn += 1
        else:
            damage.append(Damage(STATE_SUFFIX, slot, fault.value))
    for place, log in enumerate(logs):
        if log is None:
            torn += 1
        elif log.generation not in (slots.generation, following):
            # The previous log, which is no longer needed: it may be about to be overwritten.
            torn += log.headers < COPIES or any(f.copies < COPIES for f in log.frames)
        elif log.generation == slots.generation or log.frames:
            damage += _log_damage(log, place, durable)
            torn += sum(f.copies < COPIES and f.last > durable for f in log.frames)
    if not any(log and log.generation == slots.generation for log in logs):
        suffix = LOG_SUFFIXES[slots.generation % 2]
        damage.append(Damage(suffix, 0, "not the log of the newest checkpoint"))
    return damage, torn


def _log_damage(log: LogReading, place: int, durable: int) -> Iterator[Damage]:
    suffix = LOG_SUFFIXES[place]
    if log.generation % 2 != place:
        yield Damage(suffix, 0, "the log of the other file")
    if log.headers < COPIES:
        yield Damage(suffix, 0, "one of two headers")
    if log.shortened:
        yield Damage(suffix, COPIES * log.half_bytes, "shorter than it was made")
    for frame in log.frames:
        if frame.copies < COPIES and frame.last <= durable:
            yield Damage(suffix, frame.offset, "one of two copies of a frame")


def _backed(older: bytes | None, start: int, previous: LogReading | None) -> bool:
    if older is None:
        return False
    _, seq = ConsumerState.decode(older)
    for frame in previous.frames if previous else ():
        if frame.first == seq + 1:
            seq = frame.last
    return seq >= start
