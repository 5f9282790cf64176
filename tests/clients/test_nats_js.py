"""The JavaScript client, nats.js on node, against our server and against the reference.

The tests themselves are in ``js/core.mjs``; here they get servers and become test results. The
client's packages come from NODE_PACKAGES or from ``build/npm`` in the checkout; PENSTOCK_NPM=1
allows installing them there. Without node or the packages the tests are skipped, saying why.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from support_servers import Implementation, ServerPool

SCRIPT = Path(__file__).parent / "js" / "core.mjs"
PACKAGE = "@nats-io/transport-node"
CACHE = Path(__file__).parents[2] / "build" / "npm"
INSTALL_SECONDS = 120
RUN_SECONDS = 60
NAMES = re.findall(r'^  "(.+)": ', SCRIPT.read_text(), re.MULTILINE)
TOKEN = "authorization { token: s3cret }\n"
AMY = '{user: amy, password: a, permissions: {publish: "mine", subscribe: "mine"}}'
USERS = f"authorization {{ users: [ {AMY}, {{user: bob, password: b}} ] }}\n"


@cache
def _packages() -> Path:
    """Where the client is installed, or a skip that says why it is not."""
    if shutil.which("node") is None:
        pytest.skip("no node on the path")
    named = os.environ.get("NODE_PACKAGES")
    directory = Path(named) if named else CACHE
    if not (directory / "node_modules" / PACKAGE).exists() and not named:
        _install(directory)
    if not (directory / "node_modules" / PACKAGE).exists():
        pytest.skip(f"{PACKAGE} is not installed; set PENSTOCK_NPM=1 or NODE_PACKAGES")
    return directory


def _install(directory: Path) -> None:
    if os.environ.get("PENSTOCK_NPM") != "1" or shutil.which("npm") is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPT.with_name("package.json"), directory)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=directory, timeout=INSTALL_SECONDS, check=True)


@pytest.fixture(scope="module")
def outcomes(pool: ServerPool, implementation: Implementation) -> dict[str, str | None]:
    """What became of each test of the script, by name."""
    packages = _packages()
    servers = [pool.get(implementation, config).url for config in ("", TOKEN, USERS)]
    done = subprocess.run(
        ["node", str(SCRIPT), *servers],
        env={**os.environ, "NODE_PACKAGES": str(packages)},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["failure"] for line in lines}


@pytest.mark.parametrize("name", NAMES)
def test_nats_js(outcomes: dict[str, str | None], name: str) -> None:
    assert outcomes[name] is None, outcomes[name]
