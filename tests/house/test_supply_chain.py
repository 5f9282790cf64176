"""What is installed is pinned and hashed, `make setup` shows progress, the SBOM is complete."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
LOCKS = ROOT / "requirements"
HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")
PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def tool(name: str) -> Any:
    """A program of `tools/` as a module."""
    spec = importlib.util.spec_from_file_location(f"tools_{name}", ROOT / "tools" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SBOM = tool("sbom")
PINS: dict[str, str] = SBOM.pins((ROOT / "constraints.txt").read_text())


def locked(name: str) -> dict[str, str]:
    found = PINNED.findall((LOCKS / f"{name}.lock").read_text())
    return {SBOM.normal(package): version for package, version in found}


# -- pins and hashes


def test_lock_holds_what_constraints_pin() -> None:
    assert locked("dev") == PINS, "run make lock"


@pytest.mark.parametrize("name", ["build", "tools"])
def test_smaller_locks_agree_with_what_asks_for_them(name: str) -> None:
    asked = (LOCKS / f"{name}.in").read_text().split()
    found = locked(name)
    for line in asked:
        package, _, version = line.partition("==")
        wanted = version or PINS[SBOM.normal(package)]
        assert found[SBOM.normal(package)] == wanted, "run make lock"


@pytest.mark.parametrize("name", ["build", "dev", "tools"])
def test_every_locked_package_has_hash(name: str) -> None:
    entries = re.split(r"\n(?=\w)", (LOCKS / f"{name}.lock").read_text().strip())
    assert [entry for entry in entries if not HASH.search(entry)] == []


def test_pins_fulfil_what_package_requires() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    for text in [*project["dependencies"], *(line for extra in extras for line in extra)]:
        asked = Requirement(text)
        if asked.name != "penstock":
            assert asked.specifier.contains(PINS[SBOM.normal(asked.name)]), text


def test_set_up_installs_nothing_without_hash() -> None:
    steps = re.sub(r"\\\n\s*", "", (ROOT / "Makefile").read_text())
    installs = [line for line in re.split(r"[\n;]", steps) if "$(PIP) " in line]
    assert len(installs) == 3
    for line in installs:
        assert ("--require-hashes" in line) != ("--no-deps" in line and "--editable ." in line)


# -- progress


def step(*words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(ROOT / "tools" / "step.py"), *words]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return done


@pytest.mark.sockets
def test_step_prints_its_start_and_end() -> None:
    done = step("--usually", "5", "try it", "--", sys.executable, "-c", "print('noise')")
    assert done.stdout.startswith("setup: try it (usually about 5 s)\nsetup: try it: done in ")
    assert "noise" not in done.stdout + done.stderr


@pytest.mark.sockets
def test_long_step_shows_that_it_is_alive() -> None:
    program = "import sys; sys.stdin.read()"
    words = [sys.executable, str(ROOT / "tools" / "step.py"), "--every", "0.05", "wait", "--"]
    with subprocess.Popen(
        [*words, sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline() for _ in range(3)]
        running.communicate("")
    assert "so far" in lines[1]
    assert "so far" in lines[2]


@pytest.mark.sockets
def test_step_that_fails_shows_its_output_and_its_code() -> None:
    program = "import sys; print('why'); sys.exit(7)"
    done = step("fail", "--", sys.executable, "-c", program, code=7)
    assert "why" in done.stderr
    assert "failed with code 7" in done.stdout


# -- SBOM


def document(**versions: str) -> dict[str, Any]:
    components = [{"name": name, "version": version} for name, version in versions.items()]
    own = {"component": {"name": "penstock", "version": "1"}}
    return {"bomFormat": "CycloneDX", "metadata": own, "components": components}


def test_complete_sbom_has_no_fault() -> None:
    present = {"six": "1.0", "penstock": "1"}
    assert SBOM.faults_of(document(Six="1.0"), present, {"six": "1.0", "other": "2"}) == []


def test_sbom_that_leaves_something_out_is_refused() -> None:
    assert SBOM.faults_of(document(), {"six": "1.0"}, {}) == ["six 1.0 is not listed"]
    assert SBOM.faults_of(document(six="1.0"), {"six": "1.0"}, {"six": "2.0"}) == [
        "six is 1.0, pinned is 2.0"
    ]
    assert SBOM.faults_of({}, {}, {}) == ["this is not a CycloneDX document"]
