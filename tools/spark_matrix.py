"""Runs tests with Spark versions other than the pinned one: `make spark-matrix`.

Each version is installed to `build/spark-VERSION`, before the environment's version on the path;
everything else comes from the environment. Only tests that hold for every version run (marker
`every_spark`), because newer tests need features that older versions lack
(`docs/how-to/spark-versions.md`).
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent
VERSIONS: Final = ("4.0", "4.1", "4.2")
TESTS: Final = "tests/spark/test_versions.py"
#: Older versions leave sockets open, for which Python emits warnings.
QUIET: Final = (
    "-Wignore::ResourceWarning",
    "-Wignore::pytest.PytestUnraisableExceptionWarning",
)


def installed(version: str) -> Path:
    """Return the directory of a version; install it if it is missing."""
    place = ROOT / "build" / f"spark-{version}"
    if not (place / "pyspark").is_dir():
        wanted = f"pyspark=={version}.*"
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(place), wanted]
        subprocess.run(command, check=True)
    return place


def run(version: str, arguments: list[str]) -> int:
    """Run the tests; return the exit code."""
    path = os.pathsep.join([str(installed(version)), str(ROOT / "src")])
    command = [sys.executable, "-m", "pytest", "-q", "-m", "every_spark", *QUIET]
    command += [TESTS, *arguments]
    print(f"Spark {version}", flush=True)
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT).returncode


def main() -> int:
    """Run the matrix: arguments that are versions select those; others go to pytest."""
    chosen = [one for one in sys.argv[1:] if one in VERSIONS] or list(VERSIONS)
    others = [one for one in sys.argv[1:] if one not in VERSIONS]
    return max([run(version, others) for version in chosen])


if __name__ == "__main__":
    raise SystemExit(main())
