"""The consumers of one stream, by name, with their files and the sorted list that the API shows.

Invariant: a name is in the list if and only if the consumer exists and clients may name it;
consumers that feed mirrors and sources are left out. `StreamHost` is the only caller that changes
it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from penstock.store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from penstock.jetstream.consumers.consumer import Consumer
    from penstock.jetstream.host.asset_files import ConsumerFiles


class ConsumerRegistry:
    """The consumers of one stream."""

    __slots__ = ("_is_sorted", "_listed", "by_name", "files")

    def __init__(self) -> None:
        self.by_name: dict[str, Consumer] = {}
        self.files: dict[str, ConsumerFiles] = {}
        """The files of the consumers that have any."""
        self._listed: list[str] = []
        self._is_sorted = True

    def __iter__(self) -> Iterator[Consumer]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)

    def add(self, consumer: Consumer, files: ConsumerFiles | None) -> None:
        """Register a consumer."""
        self.by_name[consumer.name] = consumer
        if not consumer.cfg.direct:
            self._listed.append(consumer.name)
            self._is_sorted = False
        if files is not None:
            self.files[consumer.name] = files

    def drop(self, name: str) -> Consumer:
        """Remove a consumer and return it; its files stay registered until `forget_files`."""
        consumer = self.by_name.pop(name)
        if not consumer.cfg.direct:
            self._listed.remove(name)
        return consumer

    def forget_files(self, name: str) -> None:
        """Remove the files of a consumer that was deleted, or never saved."""
        self.files.pop(name, None)

    def close(self, *, is_deleted: bool) -> None:
        """Write pending changes unless the stream is deleted, and close the files. Blocks."""
        for files in self.files.values():
            with contextlib.suppress(StoreError):
                (files.abandon if is_deleted else files.close)()

    @property
    def listed(self) -> list[str]:
        """Return the sorted names of the consumers that API requests may name."""
        if not self._is_sorted:
            self._listed.sort()
            self._is_sorted = True
        return self._listed.copy()

    @property
    def num_listed(self) -> int:
        """Return how many consumers API requests may name."""
        return len(self._listed)
