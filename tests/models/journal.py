"""The naive journal: what every group holds after a sequence of operations, and naive records."""

from __future__ import annotations

import struct
from typing import Any, TypeAlias

from penstock.records.record_codec import checksum

Value: TypeAlias = tuple[int, int, bytes]
"""Term, kind and data of an entry."""

HEADER = struct.Struct("<2sBBIQQQI")


class JournalModel:
    """Entries by index and the state of each group. Nothing is ever checkpointed away."""

    def __init__(self) -> None:
        self._entries: dict[int, dict[int, Value]] = {}
        self._states: dict[int, bytes] = {}

    def apply(self, what: str, group: int, *args: Any) -> None:
        getattr(self, f"_{what}")(group, *args)

    def groups(self) -> set[int]:
        return self._entries.keys() | self._states.keys()

    def entries(self, group: int) -> dict[int, Value]:
        return self._entries.get(group, {})

    def state(self, group: int) -> bytes | None:
        return self._states.get(group)

    def _entry(self, group: int, index: int, term: int, kind: int, data: bytes) -> None:
        self._entries.setdefault(group, {})[index] = (term, kind, data)

    def _state(self, group: int, state: bytes) -> None:
        self._states[group] = state

    def _cut(self, group: int, index: int) -> None:
        entries = self._entries.get(group, {})
        for at in [at for at in entries if at >= index]:
            del entries[at]

    def _forget(self, group: int) -> None:
        self._entries.pop(group, None)
        self._states.pop(group, None)


def record(
    incarnation: int,
    segment: int,
    place: int,
    kind: int,
    group: int,
    index: int,
    term: int,
    payload: bytes,
) -> bytes:
    """A record as docs/formats/journal.md specifies it."""

    length = -(-(48 + len(payload)) // 8) * 8
    header = HEADER.pack(b"PJ", kind, 0, length, group, index, term, len(payload))
    segment_seed = checksum(struct.pack("<QQ", incarnation, segment), 0)
    head = checksum(header, checksum(struct.pack("<Q", place), segment_seed))
    body = payload.ljust(length - 48, b"\0")
    check = struct.pack("<I", head & 0xFFFFFFFF)
    return header + check + body + struct.pack("<Q", checksum(body, head))
