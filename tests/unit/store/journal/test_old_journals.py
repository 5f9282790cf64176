"""Journals that older versions wrote: this version opens them, reads all of it, and goes on.

`tests/golden/journal-VERSION` holds the files and what each group had; `tools/golden_journal.py`
made them. A format that is released is added and never removed.
"""

from __future__ import annotations

import json
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from support.journals import sync

ROOT = Path(__file__).parents[4]
GOLDEN = ROOT / "tests" / "golden"
sys.path.insert(0, str(ROOT / "tools"))
from golden_journal import KINDS, opened, told  # noqa: E402

VERSIONS = sorted(path.name for path in GOLDEN.glob("journal-*"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("version", VERSIONS)
def test_old_journal_is_read_and_continued(version: str, kind: str, tmp_path: Path) -> None:
    with tarfile.open(GOLDEN / version / "journal.tar.xz") as archive:
        archive.extractall(tmp_path, filter="data")
    expected: dict[str, Any] = json.loads((GOLDEN / version / "expected.json").read_text())[kind]
    journal = opened(tmp_path / kind, kind)
    assert journal.recovery.is_clean
    assert told(journal) == expected
    journal.append_entry(6, 1, b"new")
    sync(journal)
    journal.close(2)
    again = told(opened(tmp_path / kind, kind))
    assert again["turn"] == expected["turn"] + 1
    assert again["groups"].pop("6")["next"] == 2
    assert again["groups"] == expected["groups"]


def test_some_journals_are_kept() -> None:
    assert "journal-1" in VERSIONS
