"""Builds the compiled modules with sanitizers, and runs commands with them.

    python tools/sanitized.py build
    python tools/sanitized.py run python -m pytest --capture=sys tests/unit/store

`build` copies the package to `build/asan/lib` and compiles it there with gcc's address and
undefined-behaviour sanitizers; the modules in `src` stay as they are. `run` runs a command with
that copy. A process that a sanitizer finds something in writes a report to its standard error and
ends at once.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "asan"
LIBRARY = BUILD / "lib"


def build() -> int:
    """Copy and compile; skips modules that did not change."""
    for path in LIBRARY.rglob("*.py"):
        path.unlink()
    steps = ["build", "--build-base", str(BUILD), "--build-lib", str(LIBRARY), "--parallel", "2"]
    command = [sys.executable, "setup.py", "--quiet", *steps]
    log = BUILD / "build.log"
    BUILD.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as out:
        code = subprocess.run(
            command, cwd=ROOT, env=os.environ | {"PENSTOCK_SANITIZED": "1"}, stdout=out, stderr=out
        ).returncode
    if code:
        print(log.read_text()[-5000:])
    return code


def library(name: str) -> str:
    """Return the path of a gcc library."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    return str(Path(found.stdout.strip()).resolve())


def environment() -> dict[str, str]:
    """Return the environment of a process that runs with the sanitized modules."""
    return os.environ | {
        "PYTHONPATH": os.pathsep.join([str(LIBRARY), os.environ.get("PYTHONPATH", "")]),
        "LD_PRELOAD": f"{library('libasan.so')}:{library('libubsan.so')}",
        # Python's own allocator hides the end of an object from the sanitizer.
        "PYTHONMALLOC": "malloc",
        # The interpreter does not free everything at exit, so leak reports are meaningless.
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
    }


def main(arguments: list[str]) -> int:
    match arguments:
        case ["build"]:
            return build()
        case ["run", "python", *rest]:
            os.execve(sys.executable, [sys.executable, *rest], environment())
        case ["run", command, *rest]:
            os.execvpe(command, [command, *rest], environment())
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
