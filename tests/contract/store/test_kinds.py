"""Every kind of store takes part in the suite; one that cannot yet is seen here as skipped."""

from __future__ import annotations

import pytest

from support.stores import KINDS


@pytest.mark.parametrize("name", KINDS)
def test_kind_takes_part(name: str) -> None:
    reason = KINDS[name].absence()
    if reason is not None:
        pytest.skip(f"{name}: {reason}")
    assert KINDS[name].make().state().msgs == 0
