"""Which transport a URL means, and what a store without conditional puts is good for."""

from __future__ import annotations

import builtins
import sys
from typing import TYPE_CHECKING, Any

import pytest
from obstore.store import LocalStore

from penstock.fold import TransportError, artifact_at, transport_for
from penstock.fold.ship.artifact_transport import ArtifactTransport
from penstock.fold.ship.pointer import Published
from penstock.fold.ship.remote_objects import RemoteObjects
from support.transport import artifact

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("url", ["{}/there", "file://{}/there", "file://{}/%74here"])
async def test_path_and_file_url_are_the_same_place(tmp_path: Path, url: str) -> None:
    manifest = artifact(tmp_path / "a", 5)
    await transport_for(url.format(tmp_path)).upload("k", tmp_path / "a")
    assert await transport_for(f"{tmp_path}/there").manifest("k") == manifest
    assert await artifact_at(f"file://{tmp_path}/there/k").latest() == manifest


async def test_path_names_artifact_by_its_last_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = artifact(tmp_path / "a", 5)
    await transport_for(f"{tmp_path}").upload("k", tmp_path / "a")
    monkeypatch.chdir(tmp_path)
    for url in (f"{tmp_path}/k", "k", "./k", f"{tmp_path}/k/"):
        assert await artifact_at(url).latest() == manifest
    assert await artifact_at("/no-such-artifact").latest() is None


async def test_memory_is_place_too(tmp_path: Path) -> None:
    artifact(tmp_path / "a", 5)
    transport = transport_for("memory:///")
    assert await transport.upload("k", tmp_path / "a") == Published()


@pytest.mark.parametrize("url", ["s3://bucket/pre", "gs://bucket/pre", "az://container/pre"])
def test_clouds_are_known_by_their_urls(url: str) -> None:
    transport = transport_for(url, account_name="who") if url[:2] == "az" else transport_for(url)
    assert isinstance(transport, ArtifactTransport)


@pytest.mark.parametrize("url", ["s3://bucket", "s3://", "file:///", "file:///k", "", "/"])
def test_artifact_needs_place_and_key(url: str) -> None:
    with pytest.raises(ValueError, match="names no artifact"):
        artifact_at(url)


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("ftp://me:secret@host/place", {}),
        ("memory://secret", {}),
        ("s3://bucket", {"no_such_option": "secret"}),
        ("s3://bucket", {"client_options": {"no_such_option": "secret"}}),
        ("gs://bucket", {"service_account_key": "secret"}),
    ],
)
def test_place_that_cannot_be_is_refused_without_its_secrets(
    url: str, options: dict[str, Any]
) -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  the text is looked at below
        transport_for(url, **options)
    assert "secret" not in str(refused.value)


async def test_store_without_conditional_puts_is_refused_unless_it_will_do(
    tmp_path: Path,
) -> None:
    store = LocalStore(tmp_path / "store", mkdir=True)
    careful = ArtifactTransport(RemoteObjects(store))
    careless = ArtifactTransport(RemoteObjects(store, allow_non_atomic_pointer=True))
    for cursor in (5, 6):
        artifact(tmp_path / f"{cursor}", cursor)
    assert await careful.upload("k", tmp_path / "5") == Published()
    with pytest.raises(TransportError, match="no conditional put"):
        await careful.upload("k", tmp_path / "6")
    assert await careless.upload("k", tmp_path / "6") == Published()


def test_missing_library_is_reported_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    importing = builtins.__import__

    def without(name: str, *rest: object) -> object:
        if name.startswith("obstore"):
            raise ImportError(name)
        return importing(name, *rest)  # type: ignore[arg-type]

    monkeypatch.delitem(sys.modules, "penstock.fold.ship.remote_objects")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TransportError, match=r"penstock\[fold\]"):
        transport_for("s3://bucket")
