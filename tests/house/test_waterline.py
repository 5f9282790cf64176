"""Below the waterline nothing waits, listens, looks at a clock, throws dice or starts a thread.

Decisions are made in pure code and carried out at the edge; and no lower layer knows a higher one.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ROOT / "src" / "penstock"
#: Where things happen: sockets, clocks, threads, processes.
EDGE = {"server", "cluster", "bench", "bulk", "cli", "fold", "kv", "spark", "testing"}
FORBIDDEN = (
    "asyncio",
    "random",
    "secrets",
    "select",
    "selectors",
    "signal",
    "socket",
    "ssl",
    "subprocess",
    "threading",
    "time",
    "uvloop",
)
C_FORBIDDEN = ("libc.time", "posix.time", "posix.select", "libc.signal")
IMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+c?import|c?import\s+([\w.]+))", re.MULTILINE)
ASYNC = re.compile(r"^\s*(?:async\s+(?:def|with|for)|.*\bawait\s)", re.MULTILINE)

PURE = sorted(
    path
    for package in PACKAGES.iterdir()
    if package.is_dir() and package.name not in EDGE
    for pattern in ("*.py", "*.pyx", "*.pxd")
    for path in package.rglob(pattern)
)


def shown(path: Path) -> str:
    return str(path.relative_to(PACKAGES))


def test_there_is_something_below_the_waterline() -> None:
    assert {"base", "wire", "subjects", "broker"} <= {shown(path).split("/")[0] for path in PURE}


@pytest.mark.parametrize("path", PURE, ids=shown)
def test_pure_code_imports_no_clock_no_dice_no_socket(path: Path) -> None:
    named = {left or right for left, right in IMPORT.findall(path.read_text())}
    assert not {name for name in named if name.split(".")[0] in FORBIDDEN}
    assert not named & set(C_FORBIDDEN)


@pytest.mark.parametrize("path", PURE, ids=shown)
def test_pure_code_does_not_wait(path: Path) -> None:
    code = "\n".join(line.partition("#")[0] for line in path.read_text().splitlines())
    without_prose = re.sub(r'""".*?"""', "", code, flags=re.DOTALL)
    assert not ASYNC.search(without_prose)


def test_imports_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
