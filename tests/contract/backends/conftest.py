"""The fold stores the contract is held against; a new one joins in `support.folds.KINDS`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.folds import DURABLE, KINDS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from penstock.fold import SnapshotStore
    from support.folds import Kind


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=DURABLE)
def durable(request: pytest.FixtureRequest) -> Kind:
    return DURABLE[request.param]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "fold"


@pytest.fixture
def store(kind: Kind, path: Path) -> Iterator[SnapshotStore]:
    with kind.open(path) as opened:
        yield opened
