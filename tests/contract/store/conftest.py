"""The stores the contract is held against; a new one joins with a line in `support.stores.KINDS`.

`make(limits, first_seq=...)` gives an empty store of the kind under test, driven as the edge would
drive it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from support.stores import KINDS, Step

if TYPE_CHECKING:
    from support.stores import Driven, Kind, Make


PRESENT = [name for name, kind in KINDS.items() if kind.absence() is None]
ON_DISK = [name for name in PRESENT if KINDS[name].place.on_disk]


@pytest.fixture(params=PRESENT)
def kind(request: pytest.FixtureRequest) -> Kind:
    return KINDS[request.param]


@pytest.fixture(params=ON_DISK)
def on_disk(request: pytest.FixtureRequest) -> Driven:
    """A store on a disk, synced only when the test says so."""
    store = KINDS[request.param].make()
    store.step = Step.NOTHING
    return store


@pytest.fixture(params=[name for name in ON_DISK if not KINDS[name].lazy])
def synced_first(request: pytest.FixtureRequest) -> Driven:
    """A store that shows nothing before it is durable, synced only when the test says so."""
    store = KINDS[request.param].make()
    store.step = Step.NOTHING
    return store


@pytest.fixture
def make(kind: Kind) -> Make:
    return kind.make


@pytest.fixture
def store(make: Make) -> Driven:
    """Without limits."""
    return make()
