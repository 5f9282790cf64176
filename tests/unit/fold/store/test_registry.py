"""The list of fold backends, and backends of other packages."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

import pytest

from penstock.cli.folds.fold_command import BACKENDS
from penstock.fold.store import registry
from penstock.fold.store.memory_store import MemorySnapshot
from penstock.fold.store.registry import BUILT_IN, Backend, backends, store_named

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class ForeignSnapshot(MemorySnapshot):
    pass


FOREIGN = Backend(("foreign",), ForeignSnapshot, magic=b"FOREIGN")
TAKEN = Backend(("sqlite",), ForeignSnapshot)


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Install an entry point that names something in this module."""

    def install(name: str) -> None:
        point = EntryPoint(name.lower(), f"{__name__}:{name}", registry.GROUP)
        monkeypatch.setattr(registry, "entry_points", lambda group: [point])
        monkeypatch.setattr(EntryPoint, "load", lambda _: globals()[name])
        backends.cache_clear()

    yield install
    backends.cache_clear()


def test_every_name_is_used_once() -> None:
    names = [name for backend in BUILT_IN for name in backend.names]
    assert len(names) == len(set(names))


def test_command_line_offers_every_store_with_files() -> None:
    usual = [backend.names[0] for backend in BUILT_IN if backend.open_reader is not None]
    assert list(BACKENDS) == usual


def test_unknown_name_is_refused_with_known_ones() -> None:
    with pytest.raises(ValueError, match="is none of append-log, log, sqlite, lmdb"):
        store_named("paper")


def test_another_package_adds_backend(installed: Callable[[str], None]) -> None:
    installed("FOREIGN")
    assert store_named("foreign") is ForeignSnapshot
    found = registry.backend_of_file(b"FOREIGN and more")
    assert found is FOREIGN


def test_backend_with_duplicate_name_is_refused(installed: Callable[[str], None]) -> None:
    installed("TAKEN")
    with pytest.raises(ValueError, match="its name is taken"):
        backends()


def test_entry_point_that_is_no_backend_is_refused(installed: Callable[[str], None]) -> None:
    installed("ForeignSnapshot")
    with pytest.raises(TypeError, match="is not a Backend"):
        backends()
