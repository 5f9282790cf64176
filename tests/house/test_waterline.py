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


def test_there_is_something_below_waterline() -> None:
    assert {"base", "wire", "subjects", "broker"} <= {shown(path).split("/")[0] for path in PURE}


def forbidden_imports(text: str) -> set[str]:
    named = {left or right for left, right in IMPORT.findall(text)}
    return {name for name in named if name.split(".")[0] in FORBIDDEN or name in C_FORBIDDEN}


def waits(text: str) -> bool:
    code = "\n".join(line.partition("#")[0] for line in text.splitlines())
    without_prose = re.sub(r'""".*?"""', "", code, flags=re.DOTALL)
    return ASYNC.search(without_prose) is not None


def test_forbidden_calls_would_be_found() -> None:
    assert forbidden_imports("import time\nfrom libc.time cimport clock\n") == {"time", "libc.time"}
    assert waits("def f():\n    await g()\n")
    assert not waits('"""They await\nawait f()\n"""\n')


def test_pure_code_imports_no_clock_no_dice_no_socket() -> None:
    found = {shown(path): forbidden_imports(path.read_text()) for path in PURE}
    assert not {name: imports for name, imports in found.items() if imports}


def test_pure_code_does_not_wait() -> None:
    assert not [shown(path) for path in PURE if waits(path.read_text())]


@pytest.mark.sockets
def test_imports_point_down() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    if not linter.exists():
        pytest.skip("import-linter is not installed")
    done = subprocess.run([linter, "--no-cache"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
