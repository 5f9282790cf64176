"""Real power cuts, where the machine allows them: root, loop devices, ext4, a mount namespace.

What was acknowledged with default settings is there after every one. A store that does not sync
loses it, which shows that these cuts do cut.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections import Counter

PROGRAM = Path(__file__).with_name("powercut.py")
TOOLS = ("unshare", "mount", "umount", "mkfs.ext4")
TRIAL = "truncate -s 8M $0/disk && mkfs.ext4 -q -F $0/disk && mount -o loop $0/disk $0 && umount $0"
LONG_ROUNDS = 10
CUTS = 6
SECONDS_MAX = 600


def why_not(place: Path) -> str | None:
    """Why this machine allows no real power cut; None if it does."""
    if os.geteuid() != 0:
        return "not root"
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing:
        return f"no {missing[0]}"
    words = ["unshare", "--mount", "sh", "-c", TRIAL, str(place)]
    done = subprocess.run(words, capture_output=True, text=True)
    return done.stderr.strip() or "no loop device" if done.returncode else None


def cut(place: Path, cuts: int, *more: str) -> Any:
    reason = why_not(place)
    if reason is not None:
        pytest.skip(f"no real power cuts on this machine: {reason}")
    done = subprocess.run(
        ["unshare", "--mount", sys.executable, str(PROGRAM), str(place), str(cuts), *more],
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_power_cut_takes_what_was_acknowledged(
    tmp_path: Path, rounds: int, tried: Counter[str]
) -> None:
    answer = cut(tmp_path, CUTS * rounds)
    assert answer["wrong"] == []
    assert answer["acknowledged"] > CUTS
    tried["real power cuts"] += answer["cuts"]
    tried["messages acknowledged before a real power cut"] += answer["acknowledged"]


def test_store_that_does_not_sync_loses_messages_in_real_cut(tmp_path: Path) -> None:
    assert cut(tmp_path, CUTS, "dishonest")["wrong"] != []
