"""The JavaScript client, nats.js on node, against our server and against the reference.

The tests themselves are in ``js/*.mjs``; here they get servers and become test results. The
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
    from support.servers import Implementation, ServerPool

    Outcomes = dict[str, str | None]

SCRIPTS = Path(__file__).parent / "js"
PACKAGES = tuple(json.loads((SCRIPTS / "package.json").read_text())["dependencies"])
CACHE = Path(__file__).parents[2] / "build" / "npm"
INSTALL_SECONDS = 120
RUN_SECONDS = 120
TOKEN = "authorization { token: s3cret }\n"
AMY = '{user: amy, password: a, permissions: {publish: "mine", subscribe: "mine"}}'
USERS = f"authorization {{ users: [ {AMY}, {{user: bob, password: b}} ] }}\n"
JETSTREAM = ("-js", "-sd", "store")


def _names(script: str) -> list[str]:
    return re.findall(r'^  "(.+)": ', (SCRIPTS / script).read_text(), re.MULTILINE)


def _missing(directory: Path) -> list[str]:
    return [name for name in PACKAGES if not (directory / "node_modules" / name).exists()]


@cache
def _packages() -> Path:
    """Where the client is installed, or a skip that says why it is not."""
    if shutil.which("node") is None:
        pytest.skip("no node on the path")
    named = os.environ.get("NODE_PACKAGES")
    directory = Path(named) if named else CACHE
    if _missing(directory) and not named:
        _install(directory)
    missing = _missing(directory)
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed; set PENSTOCK_NPM=1 or NODE_PACKAGES")
    return directory


def _install(directory: Path) -> None:
    if os.environ.get("PENSTOCK_NPM") != "1" or shutil.which("npm") is None:
        return
    directory.mkdir(parents=True, exist_ok=True)
    shutil.copy(SCRIPTS / "package.json", directory)
    command = ["npm", "install", "--no-audit", "--no-fund", "--silent"]
    subprocess.run(command, cwd=directory, timeout=INSTALL_SECONDS, check=True)


def _run(script: str, *servers: str) -> Outcomes:
    """What became of each test of the script, by name."""
    done = subprocess.run(
        ["node", str(SCRIPTS / script), *servers],
        env={**os.environ, "NODE_PACKAGES": str(_packages())},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line["failure"] for line in lines}


@pytest.fixture(scope="module")
def core(pool: ServerPool, implementation: Implementation) -> Outcomes:
    _packages()
    servers = [pool.get(implementation, config).url for config in ("", TOKEN, USERS)]
    return _run("core.mjs", *servers)


@pytest.fixture(scope="module")
def jetstream(pool: ServerPool, implementation: Implementation) -> Outcomes:
    _packages()
    return _run("jetstream.mjs", pool.get(implementation, flags=JETSTREAM).url)


@pytest.mark.parametrize("name", _names("core.mjs"))
def test_nats_js(core: Outcomes, name: str) -> None:
    assert core[name] is None, core[name]


@pytest.mark.parametrize("name", _names("jetstream.mjs"))
def test_jetstream_of_nats_js(jetstream: Outcomes, name: str) -> None:
    assert jetstream[name] is None, jetstream[name]
