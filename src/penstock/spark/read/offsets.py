"""How far a query has read, as Spark's checkpoint keeps it.

    {"v": 1, "streams": {"EV": {"seq": 1234, "created": "2026-01-02T03:04:05.678Z"}}}

`seq` is the last sequence consumed, 0 in front of the first. `created` tells a stream from another
that later had its name. Two marks pin where a query began, since Spark asks for that anew when its
first batch failed and does not write the answer down: the very first offset is `initial`, and the
end of the batch that starts there carries the sequences it started behind as `from`. A replay of
that batch thus reads what was planned at first, whatever "latest" means by then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

OFFSET_VERSION: Final = 1


class OffsetError(ValueError):
    """A checkpoint that this version cannot go on from."""


@dataclass(frozen=True, slots=True)
class Position:
    """In a stream, behind `seq`."""

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
        """For Spark, which compares offsets as text: the order of keys is always the same."""
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
    """Where a batch really begins: what its end says of it counts, if Spark asked us anew."""
    if start.is_initial and end.began:
        return Offset(end.began)
    return start


def _positions_json(positions: Mapping[str, Position]) -> dict[str, Any]:
    return {name: positions[name].as_json() for name in sorted(positions)}


def _positions(value: Mapping[str, Any]) -> dict[str, Position]:
    return {name: Position(int(one["seq"]), str(one["created"])) for name, one in value.items()}
