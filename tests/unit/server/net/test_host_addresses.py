"""Addresses of listeners and peers."""

from __future__ import annotations

import pytest

from penstock.server.net.host_addresses import addresses_of, plain_address, reachable


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_address_begins_with_loopback_and_repeats_none(host: str) -> None:
    found = addresses_of(host)
    assert found[0] == "127.0.0.1"
    assert len(found) == len(set(found))
    assert reachable(host) == "127.0.0.1"


def test_one_address_is_itself() -> None:
    assert addresses_of("::1") == ["::1"]
    assert reachable("10.0.0.1") == "10.0.0.1"


@pytest.mark.parametrize(
    ("host", "shown"),
    [("::ffff:10.0.0.1", "10.0.0.1"), ("::1", "::1"), ("127.0.0.1", "127.0.0.1")],
)
def test_ipv4_in_ipv6_is_shown_as_ipv4(host: str, shown: str) -> None:
    assert plain_address(host) == shown
