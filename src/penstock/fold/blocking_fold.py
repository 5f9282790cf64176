"""A fold for code without an event loop: threads, scripts, notebooks.

    with BlockingFold.open("nats://127.0.0.1:4222/config", "config.db") as fold:
        fold.ready(timeout=10)
        print(fold.get("eu.limit"))

A separate thread runs the event loop of a `Fold`; methods that await there block here. Several
folds may share a thread: `with FoldThread() as thread: BlockingFold.open(..., thread=thread)`. The
`apply` of one must then not wait for another. This module has no logic of its own: errors are those
of `Fold`, and an exceeded timeout is a `TimeoutError`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, TypeVar

from penstock.bulk.errors import Closed
from penstock.bulk.loop_thread import LoopThread
from penstock.fold.errors import FoldStoreError
from penstock.fold.fold import Fold

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator, Sequence
    from pathlib import Path

    from penstock.fold.artifact.manifest import Manifest
    from penstock.fold.fold_status import FoldState, FoldStatus
    from penstock.fold.follow.resync import Resynced
    from penstock.fold.follow.subscribers import Changes
    from penstock.fold.store.contract import SnapshotReader
    from penstock.kv.contract import KvStore
    from penstock.kv.kv_types import KvEntry, KvUpdate, VersionToken, WatchCursor

T = TypeVar("T")


class FoldThread(LoopThread):
    """A thread with an event loop for several blocking folds; close the folds before it."""

    def __init__(self) -> None:
        super().__init__("penstock fold loop")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class BlockingFold:
    """A blocking `Fold`, used as a context manager. It owns its thread unless one is given.
    Methods may be called from any other thread."""

    def __init__(
        self,
        bucket: KvStore | str,
        path: Path | str,
        settings: dict[str, Any],
        thread: FoldThread | None = None,
    ) -> None:
        self._made = bucket, path, settings
        self._owns_thread = thread is None
        self._thread = FoldThread() if thread is None else thread
        self._fold: Fold | None = None

    @classmethod
    def open(
        cls,
        bucket: str,
        path: Path | str = "",
        *,
        thread: FoldThread | None = None,
        **settings: Any,
    ) -> Self:
        """Return a blocking fold; the arguments are those of `Fold.open`.

        `bucket` is a name or URL, because an open connection is bound to its event loop. `thread`
        is a running thread to share with other folds.
        """
        return cls(bucket, path, settings, thread)

    def __enter__(self) -> Self:
        if self._owns_thread:
            self._thread.start()
        try:
            self._fold = self._wait(self._open())
        except BaseException:
            self._end_thread()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Flush and close; closing twice is allowed."""
        try:
            if self._fold is not None and self._thread.is_running:
                self._wait(self._fold.close())
        finally:
            self._end_thread()

    def _end_thread(self) -> None:
        if self._owns_thread:
            self._thread.close()

    # -- waiting

    def ready(self, timeout: float | None = None) -> None:
        self._wait(self._opened.ready(), timeout)

    def wait_for(self, revision: int | VersionToken, timeout: float | None = None) -> None:
        self._wait(self._opened.wait_for(revision, timeout=timeout))

    # -- writing

    def put(
        self,
        key: str,
        value: bytes,
        *,
        expected: VersionToken | None = None,
        timeout: float | None = None,
    ) -> VersionToken:
        return self._wait(self._opened.put(key, value, expected=expected, timeout=timeout))

    def delete(
        self, key: str, *, expected: VersionToken | None = None, timeout: float | None = None
    ) -> VersionToken:
        return self._wait(self._opened.delete(key, expected=expected, timeout=timeout))

    def read(self, key: str, timeout: float | None = None) -> KvEntry | None:
        return self._wait(self._opened.read(key), timeout)

    def changes(self) -> Iterator[Sequence[KvUpdate]]:
        """Return an iterator of batches committed from now on."""
        changes = self._wait(self._ask_for_changes())
        return self._batches(changes)

    def _batches(self, changes: Changes) -> Iterator[Sequence[KvUpdate]]:
        while self._thread.is_running:
            updates = self._wait(_next(changes))
            if updates is None:
                return
            yield updates

    async def _ask_for_changes(self) -> Changes:
        return self._opened.changes()

    # -- reading, in the caller's thread

    def get(self, key: str) -> KvEntry | None:
        return self._opened.get(key)

    def get_many(self, keys: Sequence[str]) -> list[KvEntry | None]:
        return self._opened.get_many(keys)

    def range(
        self, prefix: str = "", *, after: str | None = None, limit: int | None = None
    ) -> Iterator[KvEntry]:
        return self._opened.range(prefix, after=after, limit=limit)

    def count(self, prefix: str = "") -> int:
        return self._opened.count(prefix)

    def reader(self) -> SnapshotReader:
        return self._opened.reader()

    @property
    def cursor(self) -> WatchCursor:
        return self._opened.cursor

    @property
    def state(self) -> FoldState:
        return self._opened.state

    def status(self) -> FoldStatus:
        return self._opened.status()

    def is_healthy(self, *, max_lag: int | None = None, max_age: float | None = None) -> bool:
        return self._opened.is_healthy(max_lag=max_lag, max_age=max_age)

    def resync(self, timeout: float | None = None) -> Resynced:
        return self._wait(self._opened.resync(), timeout)

    def export_to(self, dest: Path | str, *, form: str | None = None) -> Manifest:
        return self._wait(self._opened.export_to(dest, form=form))

    # -- the thread

    @property
    def _opened(self) -> Fold:
        if self._fold is None or not self._thread.is_running:
            raise FoldStoreError("the fold is not open")
        return self._fold

    async def _open(self) -> Fold:
        bucket, path, settings = self._made
        return await Fold.open(bucket, path, **settings).__aenter__()

    def _wait(self, coroutine: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        try:
            return self._thread.call(coroutine, timeout)
        except Closed:
            raise FoldStoreError("the fold is closed") from None


async def _next(changes: Changes) -> Sequence[KvUpdate] | None:
    return await anext(changes, None)
