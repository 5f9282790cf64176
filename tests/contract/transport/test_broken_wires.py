"""Connections to S3 break: work is repeated, or given up with the old artifact still published."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.fold import TransportError
from penstock.fold.ship.artifact_transport import ArtifactTransport
from penstock.fold.ship.object_store import Bounds
from penstock.fold.ship.pointer import Published
from support.folds import at
from support.proxy import Proxy
from support.transport import KEY, Place, artifact, in_s3

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from support.s3 import S3

CHUNK_BYTES = 1 << 17
BIG = b"v" * (2 << 20)


class Wire:
    """A bucket that is reached over a proxy."""

    def __init__(self, s3: S3) -> None:
        self.bucket = s3.new_bucket()
        self.place = Place(lambda: s3.objects(self.bucket))
        self._s3 = s3

    def over(
        self, proxy: Proxy, *, bounds: Bounds | None = None, patient: bool = True
    ) -> ArtifactTransport:
        return ArtifactTransport(
            self._s3.objects(self.bucket, port=proxy.port, bounds=bounds, patient=patient)
        )


@pytest.fixture
def wire(s3: S3) -> Wire:
    return Wire(s3)


def proxied(s3: S3, *spoilers: Callable[[int, bytes], bytes | None]) -> Proxy:
    return Proxy(s3.port, *spoilers, chunk_bytes=CHUNK_BYTES)


def passed_on(number: int, data: bytes) -> bytes:
    return data


def cutting_every(nth: int) -> Callable[[int, bytes], bytes | None]:
    return lambda number, data: None if number % nth == 0 else data


class CutRequests:
    """Cuts connections that carry a certain request, before it or behind it, some times."""

    def __init__(self, request: bytes, times: int, *, after_bytes: int = 0) -> None:
        self._request = request
        self._times = times
        self._after_bytes = after_bytes
        self._sent: dict[int, int] = {}
        self.cut = 0

    def sent(self, number: int, data: bytes) -> bytes | None:
        """Asked for what a client sends: cut in the middle of the request."""
        self._note(number, data)
        if self._after_bytes and self._sent.get(number, 0) > self._after_bytes:
            self.cut += 1
            return None
        return data

    def answered(self, number: int, data: bytes) -> bytes | None:
        """A request that the server serves although the requester does not receive the reply."""
        if not self._after_bytes and number in self._sent:
            self.cut += 1
            return None
        return data

    def _note(self, number: int, data: bytes) -> None:
        if self._request in data and len(self._sent) < self._times:
            self._sent[number] = 0
        if number in self._sent:
            self._sent[number] += len(data)


async def test_answers_that_are_cut_are_asked_for_again(s3: S3, wire: Wire, tmp_path: Path) -> None:
    manifest = artifact(tmp_path / "a", 9, value=BIG)
    async with proxied(s3, cutting_every(3)) as proxy:
        transport = wire.over(proxy)
        assert await transport.upload(KEY, tmp_path / "a") == Published()
        assert await transport.download(KEY, tmp_path / "b") == manifest
        assert proxy.connections > 10


async def test_parts_that_are_cut_are_sent_again(s3: S3, wire: Wire, tmp_path: Path) -> None:
    manifest = artifact(tmp_path / "a", 9, value=BIG)
    cuts = CutRequests(b"partNumber=", 3, after_bytes=1 << 20)
    async with proxied(s3, passed_on, cuts.sent) as proxy:
        assert await wire.over(proxy).upload(KEY, tmp_path / "a") == Published()
    assert cuts.cut == 3
    assert await wire.place.transport().download(KEY, tmp_path / "b") == manifest


@pytest.mark.parametrize("published", [False, True])
async def test_swap_with_lost_reply_still_won(
    s3: S3, wire: Wire, tmp_path: Path, published: bool
) -> None:
    if published:
        artifact(tmp_path / "old", 4)
        await wire.place.transport().upload(KEY, tmp_path / "old")
    manifest = artifact(tmp_path / "a", 5)
    cuts = CutRequests(b"if-match:" if published else b"if-none-match:", 1)
    async with proxied(s3, cuts.answered, cuts.sent) as proxy:
        assert await wire.over(proxy).upload(KEY, tmp_path / "a") == Published()
    assert cuts.cut == 1
    assert await wire.place.transport().manifest(KEY) == manifest


@pytest.mark.parametrize("request_", [b"partNumber=", b"uploadId=", b"if-match:"])
async def test_upload_that_cannot_continue_leaves_what_is_published(
    s3: S3, wire: Wire, tmp_path: Path, request_: bytes
) -> None:
    old = artifact(tmp_path / "old", 4)
    await wire.place.transport().upload(KEY, tmp_path / "old")
    artifact(tmp_path / "new", 9, value=BIG)
    cuts = CutRequests(request_, 1 << 30, after_bytes=1)
    async with proxied(s3, passed_on, cuts.sent) as proxy:
        with pytest.raises(TransportError):
            await wire.over(proxy, patient=False).upload(KEY, tmp_path / "new")
    assert cuts.cut > 0
    assert await wire.place.transport().download(KEY, tmp_path / "got") == old
    # The next round has no trouble with what that one left.
    assert await wire.place.transport().upload(KEY, tmp_path / "new") == Published()
    assert await wire.place.transport().prune(KEY, grace=0) == 1
    assert (await wire.place.transport().download(KEY, tmp_path / "then")).cursor == at(9)


async def test_download_that_is_cut_for_good_leaves_nothing(
    s3: S3, wire: Wire, tmp_path: Path
) -> None:
    artifact(tmp_path / "a", 9, value=BIG)
    await wire.place.transport().upload(KEY, tmp_path / "a")
    passed: dict[int, int] = {}

    def cut_bodies(number: int, data: bytes) -> bytes | None:
        passed[number] = passed.get(number, 0) + len(data)
        return None if passed[number] > 1 << 20 else data

    (tmp_path / "there").mkdir()
    async with proxied(s3, cut_bodies) as proxy:
        with pytest.raises(TransportError):
            await wire.over(proxy, patient=False).download(KEY, tmp_path / "there" / "b")
    assert nothing_in(tmp_path / "there")


async def test_server_that_never_answers_is_not_waited_for(
    s3: S3, wire: Wire, tmp_path: Path
) -> None:
    artifact(tmp_path / "a", 5)
    async with proxied(s3, lambda number, data: b"") as proxy:
        transport = wire.over(proxy, bounds=Bounds(request=0.05, finish=0.05))
        with pytest.raises(TransportError, match="in time"):
            await transport.upload(KEY, tmp_path / "a")
        with pytest.raises(TransportError, match="in time"):
            await transport.manifest(KEY)
        with pytest.raises(TransportError, match="in time"):
            await transport.prune(KEY, grace=0)


async def test_bucket_that_does_not_exist_is_reported(s3: S3, tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5)
    transport = ArtifactTransport(s3.objects("nowhere"))
    with pytest.raises(TransportError):
        await transport.upload(KEY, tmp_path / "a")


async def test_s3_makes_put_conditional(s3: S3) -> None:
    """What the pointer rests on; moto follows S3 in this."""
    objects = in_s3(s3).objects()
    assert await objects.swap("p", b"1", None)
    assert not await objects.swap("p", b"2", None)
    seen = await objects.read("p", 10)
    assert seen is not None
    assert await objects.swap("p", b"3", seen)
    assert not await objects.swap("p", b"4", seen)
    await objects.delete("p")
    assert not await objects.swap("p", b"5", seen)


def nothing_in(directory: Path) -> bool:
    return not list(directory.iterdir())
