"""The project stands on its own: no machine's paths, no unfinished business."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = {".py", ".pyx", ".pxd", ".pyi", ".md", ".toml", ".txt", ".cfg", ".mjs", ".json", ".yml"}
# Spelled in halves, so that this file does not find itself.
ELSEWHERE = re.compile("/" + "work/|/" + "root/|/" + "home/[a-z]|" + "pip" + r"\.conf|index[-_]url")
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|X" + r"XX|HA" + r"CK)\b")


def tracked() -> list[Path]:
    try:
        listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    except FileNotFoundError:
        return []
    paths = [ROOT / name for name in listed.stdout.splitlines()]
    return [path for path in paths if path.suffix in TEXT and path.exists()]


FILES = tracked()


@pytest.mark.skipif(not FILES, reason="not a git checkout")
def test_no_file_names_path_of_developer_machine() -> None:
    named = {
        str(path.relative_to(ROOT)): found[0]
        for path in FILES
        if (found := ELSEWHERE.search(path.read_text(errors="replace")))
    }
    assert named == {}


@pytest.mark.skipif(not FILES, reason="not a git checkout")
def test_nothing_is_left_for_later() -> None:
    left = {
        str(path.relative_to(ROOT)): found[0]
        for path in FILES
        if (found := UNFINISHED.search(path.read_text(errors="replace")))
    }
    assert left == {}
