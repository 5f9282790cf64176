"""/accountz: what an account exports, imports and maps, as the reference shows it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.request import urlopen

import pytest

from support.servers import OURS, REFERENCE

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool

pytestmark = pytest.mark.skipif(REFERENCE is None, reason="no reference server")

CONFIG = """
http: "127.0.0.1:-1"
accounts {
  A {
    users: [ {user: a, password: a} ]
    exports: [
      { service: "q.>", response_type: stream }
      { stream: "s.*", accounts: [B] }
      { service: "one" }
    ]
  }
  B {
    users: [ {user: b, password: b} ]
    imports: [
      { service: {account: A, subject: "q.>"}, to: "my.>", share: true }
      { stream: {account: A, subject: "s.*"}, prefix: p }
    ]
    mappings: { "foo.*": "bar.$1", x: [ {dest: y, weight: 20} ] }
  }
}
"""


def detail(pool: ServerPool, implementation: Implementation, account: str) -> dict[str, Any]:
    server = pool.get(implementation, CONFIG)
    with urlopen(f"{server.http_url}/accountz?acc={account}") as answer:
        found: dict[str, Any] = json.load(answer)["account_detail"]
    return found


@pytest.mark.parametrize("account", ["A", "B"])
def test_exports_and_imports_are_shown(pool: ServerPool, account: str) -> None:
    assert REFERENCE is not None
    theirs, ours = detail(pool, REFERENCE, account), detail(pool, OURS, account)
    # Everybody's services of the system account are imports in the reference.
    theirs["imports"] = [one for one in theirs["imports"] if one["account"] != "$SYS"]
    for key in ("mappings", "imports"):
        assert ours.get(key, []) == theirs.get(key, [])

    def by_subject(export: dict[str, Any]) -> str:
        return str(export["subject"])

    assert sorted(ours.get("exports", []), key=by_subject) == sorted(
        theirs.get("exports", []), key=by_subject
    )
