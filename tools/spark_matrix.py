"""Runs tests with other versions of Spark than the one that is pinned: `make spark-matrix`.

Each version is installed into `build/spark-VERSION`, before that of the environment on the path;
all else is the environment's. Only what every version promises is run (marker `every_spark`), since
newer tests need what older versions lack (`docs/how-to/spark-versions.md`).
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
#: Older versions leave sockets open, which Python warns of.
QUIET: Final = (
    "-Wignore::ResourceWarning",
    "-Wignore::pytest.PytestUnraisableExceptionWarning",
)


def installed(version: str) -> Path:
    """Where a version is; it is installed if it is not there yet."""
    place = ROOT / "build" / f"spark-{version}"
    if not (place / "pyspark").is_dir():
        wanted = f"pyspark=={version}.*"
        command = [sys.executable, "-m", "pip", "install", "-q", "--target", str(place), wanted]
        subprocess.run(command, check=True)
    return place


def run(version: str, arguments: list[str]) -> int:
    """The tests' exit code."""
    path = os.pathsep.join([str(installed(version)), str(ROOT / "src")])
    command = [sys.executable, "-m", "pytest", "-q", "-m", "every_spark", *QUIET]
    command += [TESTS, *arguments]
    print(f"Spark {version}", flush=True)
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, cwd=ROOT).returncode


def main() -> int:
    """Arguments that are versions choose those; others go to pytest."""
    chosen = [one for one in sys.argv[1:] if one in VERSIONS] or list(VERSIONS)
    others = [one for one in sys.argv[1:] if one not in VERSIONS]
    return max([run(version, others) for version in chosen])


if __name__ == "__main__":
    raise SystemExit(main())
