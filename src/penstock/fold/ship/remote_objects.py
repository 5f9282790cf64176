"""Objects in S3, Google Cloud Storage, Azure or memory, through the obstore library.

Payloads are transferred in parts of `PART_BYTES`, at most `PARTS_IN_FLIGHT` at once. So memory is
bounded, and a broken connection costs only a part, because obstore retries failed requests. A
conditional put decides between concurrent publishers. A store without conditional put is rejected
unless the caller sets `allow_non_atomic_pointer`.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import obstore
import obstore.store
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from penstock.fold.errors import ArtifactInvalid, ObjectMissing, TransportError
from penstock.fold.ship.object_store import PART_BYTES, PARTS_IN_FLIGHT, Bounds, ListedObject, Seen
from penstock.fold.store.atomic_files import os_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping
    from pathlib import Path
    from typing import Any, BinaryIO, Literal

    from obstore import GetOptions, ObjectMeta, PutMode
    from obstore.store import ObjectStore

    from penstock.fold.ship.object_store import Progress

_RACES_LOST = (AlreadyExistsError, PreconditionError, FileNotFoundError)


class RemoteObjects:
    """`Objects` in an obstore store, below the store's prefix."""

    def __init__(
        self,
        store: ObjectStore,
        *,
        allow_non_atomic_pointer: bool = False,
        bounds: Bounds | None = None,
    ) -> None:
        self._store = store
        self._allow_non_atomic = allow_non_atomic_pointer
        self._bounds = bounds or Bounds()

    async def read(self, path: str, size_max: int) -> Seen | None:
        async with self._request(path):
            try:
                got = await obstore.get_async(self._store, path)
            except FileNotFoundError:
                return None
            if got.meta["size"] > size_max:
                raise ArtifactInvalid(f"longer than {size_max} bytes", path=path)
            body = bytes(await got.bytes_async())
            return Seen(body, (got.meta["e_tag"], got.meta["version"]))

    async def swap(self, path: str, body: bytes, seen: Seen | None) -> bool:
        async with self._request(path):
            try:
                await obstore.put_async(self._store, path, body, mode=_mode(seen))
            except _RACES_LOST:
                return False
            except NotImplementedError as error:
                if not self._allow_non_atomic:
                    raise TransportError(
                        "the store has no conditional put, so publishers could undo each other",
                        path=path,
                    ) from error
                await obstore.put_async(self._store, path, body)
            return True

    async def upload(self, path: str, file: Path, progress: Progress) -> None:
        with _opened(file, "rb") as source:
            total = os.fstat(source.fileno()).st_size
            async with self._request(path) as bound:
                parts = self._parts(source, total, bound, progress)
                await obstore.put_async(
                    self._store,
                    path,
                    parts,
                    use_multipart=True,
                    chunk_size=PART_BYTES,
                    max_concurrency=PARTS_IN_FLIGHT,
                )
        progress(total, total)

    async def _parts(
        self, source: BinaryIO, total: int, bound: asyncio.Timeout, progress: Progress
    ) -> AsyncIterator[bytes]:
        """Yield the file in parts. A request for a part shows that an earlier one has arrived, so
        it extends the time limit."""
        done = 0
        while part := await asyncio.to_thread(source.read, PART_BYTES):
            _extend(bound, self._bounds.request)
            yield part
            done += len(part)
            progress(max(0, done - PARTS_IN_FLIGHT * PART_BYTES), total)
        _extend(bound, self._bounds.finish)

    async def download(self, path: str, file: Path, progress: Progress) -> None:
        async with self._request(path):
            meta = await obstore.head_async(self._store, path)
        with os_errors(file), _opened(file, "wb") as target:
            async for part in self._fetched(path, meta):
                await asyncio.to_thread(target.write, part)
                progress(target.tell(), meta["size"])

    async def _fetched(self, path: str, meta: ObjectMeta) -> AsyncIterator[bytes]:
        """Yield the parts of an object in order; several requests run concurrently."""
        starts = iter(range(0, meta["size"], PART_BYTES))
        waiting: deque[asyncio.Task[bytes]] = deque()
        try:
            while True:
                while len(waiting) < PARTS_IN_FLIGHT and (start := next(starts, -1)) >= 0:
                    waiting.append(asyncio.create_task(self._part(path, meta, start)))
                if not waiting:
                    return
                yield await waiting[0]
                waiting.popleft()
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _part(self, path: str, meta: ObjectMeta, start: int) -> bytes:
        stop = min(start + PART_BYTES, meta["size"])
        options: GetOptions = {"range": (start, stop)}
        if meta["e_tag"] is not None:  # fail early if the object was replaced between two parts
            options["if_match"] = meta["e_tag"]
        async with self._request(path):
            got = await obstore.get_async(self._store, path, options=options)
            part = bytes(await got.bytes_async())
            if len(part) != stop - start:
                raise TransportError(f"{len(part)} bytes came for {stop - start}", path=path)
            return part

    async def listed(self, directory: str) -> AsyncIterator[ListedObject]:
        pages = obstore.list(self._store, directory).__aiter__()
        while True:
            async with self._request(directory):
                try:
                    page = await anext(pages)
                except (StopAsyncIteration, FileNotFoundError):
                    return
            for meta in page:
                folder, _, name = meta["path"].rpartition("/")
                if folder == directory:
                    yield ListedObject(name, meta["last_modified"].timestamp())

    async def delete(self, path: str) -> None:
        async with self._request(path):
            try:
                await obstore.delete_async(self._store, path)
            except FileNotFoundError:
                return

    @asynccontextmanager
    async def _request(self, path: str) -> AsyncIterator[asyncio.Timeout]:
        """Limit the time of the block, and convert its errors to `TransportError`."""
        try:
            async with asyncio.timeout(self._bounds.request) as bound:
                yield bound
        except TimeoutError as error:
            raise TransportError("no answer in time", path=path) from error
        except FileNotFoundError as error:
            raise ObjectMissing(_first_line(error), path=path) from error
        except BaseError as error:
            raise TransportError(_first_line(error), path=path) from error


def store_at(url: str, options: Mapping[str, Any]) -> ObjectStore:
    """Return the store for a URL; ValueError if the URL or an option is not supported."""
    try:
        return obstore.store.from_url(url, **options)
    except (BaseError, TypeError) as error:
        # The error omits the URL and the options, because they may contain credentials.
        scheme, reason = url.partition("://")[0], _first_line(error).partition(' "')[0]
        raise ValueError(f"no store of objects at {scheme}://: {reason}") from None


def _opened(file: Path, mode: Literal["rb", "wb"]) -> BinaryIO:
    with os_errors(file):
        return open(file, mode)


def _extend(bound: asyncio.Timeout, seconds: float) -> None:
    bound.reschedule(asyncio.get_running_loop().time() + seconds)


def _mode(seen: Seen | None) -> PutMode:
    if seen is None:
        return "create"
    e_tag, version = seen.tag
    if version is None:  # obstore rejects None as a wrong type
        return {"e_tag": e_tag}
    return {"e_tag": e_tag, "version": version}


def _first_line(error: Exception) -> str:
    """Return the first line of an error; the other lines are obstore debug output."""
    return str(error).partition("\n")[0]
