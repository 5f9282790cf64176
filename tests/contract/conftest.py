"""Fixtures of the contract suites, and the wanted differences as strict expected failures."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from support.servers import implementation, pool, server, start
from support.tls import certificates

__all__ = ["certificates", "implementation", "pool", "server", "start"]

DIFFERENCES = Path(__file__).parent / "server" / "differences.toml"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark deliberate differences of ours; a difference that no longer exists fails."""
    wanted = tomllib.loads(DIFFERENCES.read_text())
    for item in items:
        law = item.nodeid.partition("contract/server/")[2]
        callspec = getattr(item, "callspec", None)
        if callspec is None or callspec.params.get("implementation") != "ours":
            continue
        for name, reason in wanted.items():
            if name in law:
                item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
