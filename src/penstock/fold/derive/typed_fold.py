"""Typed access to a fold: the entries of any reader, decoded by a codec.

Nothing is cached: a value is decoded at each read. An undecodable value raises in `get` and
`get_many`; `range` skips it by default. `Quarantine` lists such values. Thread-safe, like the
reader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, Literal, TypeVar

from msgspec import Struct

from penstock.fold.derive.value_codecs import Undecodable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from penstock.fold.derive.value_codecs import Codec
    from penstock.fold.store.contract import SnapshotReader
    from penstock.kv.kv_types import KvEntry, VersionToken

T = TypeVar("T")


class TypedEntry(Struct, Generic[T], frozen=True):
    """One key with its decoded value."""

    key: str
    value: T
    version: VersionToken


class Typed(Generic[T]):
    """A typed view of a store or of any reader."""

    def __init__(self, store: SnapshotReader, codec: Codec[T]) -> None:
        self._store = store
        self._codec = codec

    def get(self, key: str) -> TypedEntry[T] | None:
        """Return the decoded entry of a key; raise `Undecodable` if the codec cannot read it."""
        entry = self._store.get(key)
        return None if entry is None else self._typed(entry)

    def get_many(self, keys: Sequence[str]) -> list[TypedEntry[T] | None]:
        """Return one result per key; raise `Undecodable` if a value cannot be decoded."""
        found = self._store.get_many(keys)
        return [None if entry is None else self._typed(entry) for entry in found]

    def range(
        self,
        prefix: str = "",
        *,
        after: str | None = None,
        limit: int | None = None,
        undecodable: Literal["skip", "raise"] = "skip",
    ) -> Iterator[TypedEntry[T]]:
        """Yield entries in ascending order; `limit` counts decodable entries only."""
        left = limit
        for entry in self._store.range(prefix, after=after):
            if left == 0:
                return
            try:
                typed = self._typed(entry)
            except Undecodable:
                if undecodable == "raise":
                    raise
                continue
            yield typed
            left = None if left is None else left - 1

    def _typed(self, entry: KvEntry) -> TypedEntry[T]:
        try:
            return TypedEntry(entry.key, self._codec.decode(entry.value), entry.version)
        except Undecodable as error:
            raise Undecodable(f"key {entry.key!r}: {error.reason}") from error
