"""Entries whose value cannot be read: listed in the commit that brings them, until they can.

The entry itself stays in the fold as it came; the list says which keys, since when and why. It goes
from the list when a good value or a delete comes, or when `retry` finds that it can be read by now.
A codec of another name, or another `schema` number, looks at everything again.

    quarantine\\0 <key>   revision, reason
"""

from __future__ import annotations

from heapq import nsmallest
from typing import TYPE_CHECKING, Any

import msgspec

from penstock.fold.derive.value_codecs import Undecodable
from penstock.fold.store.contract import PAGE_ENTRIES
from penstock.fold.store.extensions import EntryChange, Extension
from penstock.fold.store.value_record import decode_key
from penstock.kv.kv_types import Op

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.fold.derive.value_codecs import Codec
    from penstock.fold.store.contract import SnapshotReader, SnapshotStore

REASON_CHARACTERS_MAX = 200


class Rejected(msgspec.Struct, frozen=True):
    """An entry that cannot be read."""

    key: str
    revision: int | None
    reason: str


class Quarantine(Extension):
    """The list of what a codec cannot read."""

    name = "quarantine"

    def __init__(self, codec: Codec[Any], *, schema: int = 1) -> None:
        super().__init__()
        self._codec = codec
        self._schema = schema
        self._keys: set[str] = set()
        self._planned: dict[str, bool] = {}

    @property
    def stamp(self) -> bytes:
        return f"{self._schema} {self._codec.name}".encode()

    def __len__(self) -> int:
        return len(self._keys)

    def first(self, count: int) -> list[str]:
        """The lowest keys of those listed."""
        return nsmallest(count, tuple(self._keys))

    def listed(self, store: SnapshotReader) -> Iterator[Rejected]:
        """What cannot be read, ascending by key."""
        self.check_in(store)
        for row, value in self.rows(store):
            revision, reason = msgspec.msgpack.decode(value, type=tuple[int | None, str])
            yield Rejected(decode_key(row), revision, reason)

    def retry(self, store: SnapshotStore) -> int:
        """Read what is listed once more; how many can be read now. For the thread that changes it.

        Worth it where a codec depends on something else, a schema that was fetched since.
        """
        self.check_in(store)
        mended = 0
        keys = sorted(self._keys)
        for start in range(0, len(keys), PAGE_ENTRIES):
            rows: dict[bytes, bytes | None] = {}
            for entry in store.get_many(keys[start : start + PAGE_ENTRIES]):
                if entry is not None and self._reason(entry.value) is None:
                    rows[self._row(entry.key)] = None
                    self._keys.discard(entry.key)
            store.write_side(rows)
            mended += len(rows)
        return mended

    # -- as an extension

    def plan(self, change: EntryChange) -> None:
        self._planned = {}
        for key, update in change.after.items():
            reason = self._reason(update.value) if update.op is Op.PUT else None
            if reason is not None:
                value = (update.version.revision, reason)
                change.side[self._row(key)] = msgspec.msgpack.encode(value)
                self._planned[key] = True
            elif key in self._keys:
                change.side[self._row(key)] = None
                self._planned[key] = False

    def committed(self) -> None:
        for key, is_bad in self._planned.items():
            (self._keys.add if is_bad else self._keys.discard)(key)

    def built(self, store: SnapshotReader) -> Iterator[tuple[bytes, bytes]]:
        self._keys = set()
        for entry in store.range():
            reason = self._reason(entry.value)
            if reason is not None:
                self._keys.add(entry.key)
                yield self._row(entry.key), msgspec.msgpack.encode((entry.revision, reason))

    def load(self, store: SnapshotReader) -> None:
        self._keys = {decode_key(row) for row, _ in self.rows(store)}

    def _row(self, key: str) -> bytes:
        return self.prefix + key.encode()

    def _reason(self, value: bytes) -> str | None:
        """Why a value cannot be read; whatever a codec raises is its answer."""
        try:
            self._codec.decode(value)
        except Undecodable as error:
            return error.reason[:REASON_CHARACTERS_MAX]
        except Exception as error:
            return type(error).__name__  # its text may quote the value
        return None
