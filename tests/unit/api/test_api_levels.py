"""API levels in metadata and in requests."""

from __future__ import annotations

import pytest

from penstock.api.api_levels import (
    FORMER_KEYS,
    demands_too_much,
    shown_metadata,
    stored_metadata,
    without_levels,
)


def test_shown_values_are_never_stored() -> None:
    stored = stored_metadata({"k": "v"}, 2)
    assert stored == {"k": "v", "_nats.req.level": "2"}
    assert stored_metadata(shown_metadata(stored), 2) == stored


def test_keys_of_former_versions_are_neither_stored_nor_shown() -> None:
    former = dict.fromkeys(FORMER_KEYS, "1")
    assert stored_metadata({"k": "v"} | former, 0) == {"k": "v", "_nats.req.level": "0"}
    assert shown_metadata(former).keys().isdisjoint(FORMER_KEYS)


def test_without_levels_only_users_keys_are_left() -> None:
    assert without_levels(shown_metadata(stored_metadata({"k": "v"}, 1))) == {"k": "v"}


@pytest.mark.parametrize("demanded", ["6", "99", "x", "1.0", "+", "²", " 1", "9" * 30])
def test_request_may_demand_too_much(demanded: str) -> None:
    assert demands_too_much(demanded)


@pytest.mark.parametrize("demanded", ["", "0", "5", "+5", "-1"])
def test_request_may_demand_what_there_is(demanded: str) -> None:
    assert not demands_too_much(demanded)
