"""Offsets of a streaming query, as Spark's checkpoint stores them.

    {"v": 1, "streams": {"EV": {"seq": 1234, "created": "2026-01-02T03:04:05.678Z"}}}

`seq` is the last sequence consumed, 0 before the first. `created` distinguishes a stream from a
later one of the same name. Two marks record where a query began, because Spark requests the initial
offset again when the first batch failed, and does not store it: the first offset has `initial`, and
the end of the batch that starts there stores the sequences it started after as `from`. A replay of
that batch thus reads what was planned originally, whatever "latest" means by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFSET_VERSION: Final = 1


class OffsetError(ValueError):
    """A checkpoint that this version cannot resume from."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position after `seq` in a stream."""

    seq: int
    created: str

    def as_json(self) -> dict[str, Any]:
        return {"seq": self.seq, "created": self.created}


@dataclass(frozen=True, slots=True)
class Offset:
    """A position in each stream."""

    streams: Mapping[str, Position]
    is_initial: bool = False
    began: Mapping[str, Position] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return JSON with a fixed order of keys, because Spark compares offsets as text."""
        found: dict[str, Any] = {"v": OFFSET_VERSION, "streams": _positions_json(self.streams)}
        if self.is_initial:
            found["initial"] = True
        if self.began:
            found["from"] = _positions_json(self.began)
        return found

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Offset:
        version = value.get("v")
        if version != OFFSET_VERSION:
            raise OffsetError(
                f"the checkpoint has offsets of version {version}, this is version "
                f"{OFFSET_VERSION}: begin with a new checkpointLocation"
            )
        return cls(
            _positions(value.get("streams", {})),
            is_initial=bool(value.get("initial")),
            began=_positions(value.get("from", {})),
        )


def batch_start(start: Offset, end: Offset) -> Offset:
    """Return the true start of a batch: the one stored in its end, if `start` is an initial
    offset."""
    if start.is_initial and end.began:
        return Offset(end.began)
    return start


def _positions_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    return {name: positions[name].as_json() for name in sorted(positions)}


def _positions(value: Mapping[str, Any]) -> dict[str, Position]:
    return {name: Position(int(one["seq"]), str(one["created"])) for name, one in value.items()}
