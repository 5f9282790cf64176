"""Planning of batches: pure decisions over offsets and the current state of the streams.

`checked_start` returns where a query continues, or raises on data loss; `advanced` returns the end
of the next batch under its limits; `ranges_between` and `split` divide it into tasks.
Invariant: ranges are half-open and cover everything between two offsets without gap or overlap.

Gaps inside a stream are normal (deletes, newer values, interest), so only two cases count as loss:
a stream that begins after the position of the query, unless the stream drops messages in normal
operation; and a stream that was recreated or truncated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from penstock.api.timestamps import format_time
from penstock.spark.errors import lost
from penstock.spark.read.offsets import Offset, Position

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from penstock.bulk.bulk_requests import StreamSummary

KEEPS_BY_LIMITS: Final = "limits"


@dataclass(frozen=True, slots=True)
class StreamView:
    """What a plan needs to know of a stream."""

    name: str
    created: str
    first_seq: int
    last_seq: int
    byte_count: int = 0
    #: The retention removes what a consumer reads, even without acknowledgements.
    consumes: bool = False
    #: The stream drops messages in normal operation: a later first sequence is no loss.
    sheds: bool = False
    allows_direct: bool = False
    messages: int = 0

    @classmethod
    def of(cls, state: StreamSummary) -> StreamView:
        config = state.config
        consumes = config.get("retention", KEEPS_BY_LIMITS) != KEEPS_BY_LIMITS
        return cls(
            name=state.name,
            created=format_time(state.created_ns),
            first_seq=state.first_seq,
            last_seq=state.last_seq,
            byte_count=state.byte_count,
            consumes=consumes,
            sheds=consumes or config.get("max_msgs_per_subject", -1) > 0,
            allows_direct=bool(config.get("allow_direct")),
            messages=state.messages,
        )

    @property
    def front(self) -> int:
        """The sequence before the first message."""
        return max(self.first_seq, 1) - 1

    @property
    def end(self) -> Position:
        """The position after the last message."""
        return Position(self.last_seq, self.created)

    @property
    def mean_bytes(self) -> float:
        """Mean size of a stored message."""
        return self.byte_count / max(1, self.messages)

    @property
    def bytes_per_seq(self) -> float:
        return self.byte_count / max(1, self.last_seq - self.front)


@dataclass(frozen=True, slots=True)
class SeqRange:
    """Sequences of one stream, start <= seq < stop."""

    stream: str
    created: str
    start: int
    stop: int

    def __len__(self) -> int:
        return max(0, self.stop - self.start)


@dataclass(frozen=True, slots=True)
class ReadLimits:
    """Size limits of a batch; 0 is no limit."""

    offsets_max: int = 0
    bytes_max: int = 0


def checked_start(start: Offset, views: Mapping[str, StreamView], *, fail_on_loss: bool) -> Offset:
    """Return where the query continues in the streams as they are now; raises `DataLoss` on loss.

    A stream that the offset does not contain is new to the query and read from its beginning.
    """
    found: dict[str, Position] = {}
    for name, view in views.items():
        position = start.streams.get(name)
        if position is None:
            found[name] = Position(view.front, view.created)
            continue
        fault = fault_of(view, position)
        if fault and fail_on_loss:
            raise lost(fault)
        found[name] = _mended(view, position) if fault else position
    return replace(start, streams=found)


def removed_after(view: StreamView, position: Position) -> int:
    """Return the number of sequences after a position that the stream's limits removed."""
    if view.created != position.created or view.sheds:
        return 0
    return max(0, view.front - position.seq)


def fault_of(view: StreamView, position: Position) -> str:
    """Describe what was lost after a position; empty if nothing was."""
    name = view.name
    if view.created != position.created:
        return (
            f"stream {name} was deleted and recreated: the one that was read was created "
            f"{position.created}, this one {view.created}"
        )
    if view.last_seq < position.seq:
        return (
            f"stream {name} ends at {view.last_seq}, though it was read up to {position.seq}: "
            "it was truncated or restored from an older state"
        )
    if view.front > position.seq and not view.sheds:
        return (
            f"stream {name} begins at {view.first_seq}, though {position.seq + 1} is next to be "
            "read: messages were removed before they were read"
        )
    return ""


def _mended(view: StreamView, position: Position) -> Position:
    if view.created != position.created:
        return Position(view.front, view.created)
    return Position(min(position.seq, view.last_seq), view.created)


def advanced(start: Offset, views: Mapping[str, StreamView], limits: ReadLimits) -> Offset:
    """Return the end of the batch that begins at `start`, which `checked_start` returned."""
    room = {
        name: max(0, views[name].last_seq - position.seq)
        for name, position in start.streams.items()
    }
    if limits.bytes_max:
        wanted = sum(views[name].bytes_per_seq * count for name, count in room.items())
        if wanted > limits.bytes_max:
            room = shared(room, max(1, int(sum(room.values()) * limits.bytes_max / wanted)))
    if limits.offsets_max:
        room = shared(room, limits.offsets_max)
    return Offset(
        {
            name: Position(position.seq + room[name], position.created)
            for name, position in start.streams.items()
        }
    )


def shared(room: Mapping[str, int], total_max: int) -> dict[str, int]:
    """Reduce counts in proportion until their sum fits; give every stream at least one if
    possible."""
    total = sum(room.values())
    if total <= total_max:
        return dict(room)
    given = {name: count * total_max // total for name, count in room.items()}
    left = total_max - sum(given.values())
    for name in sorted(room, key=lambda name: (given[name] > 0, -room[name], name)):
        if left and given[name] < room[name]:
            given[name] += 1
            left -= 1
    return given


def available(start: Offset, views: Mapping[str, StreamView]) -> int:
    """Return the number of sequences between a checked offset and the ends of its streams."""
    return sum(
        max(0, views[name].last_seq - position.seq) for name, position in start.streams.items()
    )


def ranges_between(start: Offset, end: Offset) -> list[SeqRange]:
    """Return the ranges between two offsets. A recreated stream is read from its beginning."""
    found: list[SeqRange] = []
    for name, position in sorted(end.streams.items()):
        before = start.streams.get(name)
        is_same = before is not None and before.created == position.created
        first = before.seq + 1 if is_same and before is not None else 1
        if first <= position.seq:
            found.append(SeqRange(name, position.created, first, position.seq + 1))
    return found


def clipped(ranges: Sequence[SeqRange], views: Mapping[str, StreamView]) -> list[SeqRange]:
    """Cut ranges at the first message of their streams."""
    cut = [replace(one, start=max(one.start, views[one.stream].front + 1)) for one in ranges]
    return [one for one in cut if len(one)]


def split(
    ranges: Sequence[SeqRange], *, partitions_min: int = 0, records_max: int
) -> list[SeqRange]:
    """Split ranges evenly: none longer than `records_max`, at least `partitions_min` if
    possible."""
    total = sum(map(len, ranges))
    parts: list[SeqRange] = []
    for one in ranges:
        count = -(-len(one) // records_max)
        if partitions_min:
            count = max(count, -(-partitions_min * len(one) // total))
        count = min(count, len(one))
        cuts = [one.start + len(one) * number // count for number in range(count + 1)]
        parts += [replace(one, start=start, stop=stop) for start, stop in pairwise(cuts)]
    return parts
