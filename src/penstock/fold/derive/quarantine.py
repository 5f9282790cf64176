"""The quarantine: a list of entries whose value cannot be decoded, updated in every commit.

The entry itself stays in the fold unchanged; the list records key, revision and reason. An entry
leaves the list when a decodable value or a delete arrives, or when `retry` can decode it. A codec
with another name, or another `schema` number, rebuilds the list.

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
    """An entry that cannot be decoded."""

    key: str
    revision: int | None
    reason: str


class Quarantine(Extension):
    """The list of entries that a codec cannot decode."""

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
        """Return the lowest `count` keys of the list."""
        return nsmallest(count, tuple(self._keys))

    def listed(self, store: SnapshotReader) -> Iterator[Rejected]:
        """Yield the listed entries in ascending key order."""
        self.check_in(store)
        for row, value in self.rows(store):
            revision, reason = msgspec.msgpack.decode(value, type=tuple[int | None, str])
            yield Rejected(decode_key(row), revision, reason)

    def retry(self, store: SnapshotStore) -> int:
        """Decode the listed entries again and return how many can now be decoded.

        Call it in the thread that changes the store. It helps if a codec depends on external state,
        such as a schema that was fetched since.
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

    # -- Extension methods

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
        """Return why a value cannot be decoded, None if it can; any exception counts."""
        try:
            self._codec.decode(value)
        except Undecodable as error:
            return error.reason[:REASON_CHARACTERS_MAX]
        except Exception as error:
            return type(error).__name__  # the error text may contain the value
        return None
