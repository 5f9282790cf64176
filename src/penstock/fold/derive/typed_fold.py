"""A fold read as objects: the entries of any reader through a codec.

Nothing is kept here: a value is decoded when it is read. One that cannot be is an error where a key
was asked for, and is passed over in a range unless asked otherwise; `Quarantine` keeps the list of
them. Safe from any thread, as the reader is.
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
    """One key as it was read and understood."""

    key: str
    value: T
    version: VersionToken


class Typed(Generic[T]):
    """A view of a store, a fold's reader, or a reader of another process."""

    def __init__(self, store: SnapshotReader, codec: Codec[T]) -> None:
        self._store = store
        self._codec = codec

    def get(self, key: str) -> TypedEntry[T] | None:
        """`Undecodable` if the value is not what the codec reads."""
        entry = self._store.get(key)
        return None if entry is None else self._typed(entry)

    def get_many(self, keys: Sequence[str]) -> list[TypedEntry[T] | None]:
        """One answer per key; `Undecodable` if one of them is."""
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
        """Entries in ascending order; `limit` counts those that can be read."""
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
