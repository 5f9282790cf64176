"""/metrics of many accounts is made in slices, and is the same page."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.server.monitor import server_metrics, sliced_pages
from penstock.server.server_app import Server

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.sockets

ACCOUNTS = 1000


async def test_page_of_many_accounts_is_made_in_slices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "server.conf"
    names = ", ".join(f"A{n}: {{}}" for n in range(ACCOUNTS))
    file.write_text(f'listen: "127.0.0.1:-1"\naccounts {{ {names} }}\n')
    async with Server(config=file) as server:
        whole = server_metrics.metrics(server.service)
        monkeypatch.setattr(sliced_pages, "SLICE_NS", 0)
        cut = server_metrics.metrics(server.service)
        assert cut.rest is not None
        pieces = [cut.body, *cut.rest]
    assert max(map(len, pieces)) < 65_536
    rest = b"" if whole.rest is None else b"".join(whole.rest)
    assert accounts_in(b"".join(pieces)) == accounts_in(whole.body + rest)


def accounts_in(page: bytes) -> list[str]:
    """Every account that the page names, once; a family that came twice would fail here."""
    families = list(text_string_to_metric_families(page.decode()))
    assert len(families) == len({family.name for family in families})
    [connections] = [one for one in families if one.name == "penstock_account_connections"]
    found = [sample.labels["account"] for sample in connections.samples]
    assert len(found) >= ACCOUNTS
    return found
