"""Generates `requirements/*.lock`: every pinned package with the hashes of all its published files.

    make lock

`constraints.txt` pins the versions; `requirements/build.in` lists the packages that compile the
Cython modules, `requirements/tools.in` those that `make lock` and `make sbom` run. The lock
contains a hash of each published file, for every Python and every architecture, so one lock fits
them all. `make setup` installs nothing whose hash is not in a lock.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
LOCKS = ROOT / "requirements"
OLDEST_PYTHON = "3.11"


def main() -> None:
    pins = pinned(ROOT / "constraints.txt")
    wanted = (LOCKS / "build.in").read_text().lower().split()
    write("build", [pin for name, pin in pins.items() if name in wanted], whole=True)
    write("dev", list(pins.values()), whole=True)
    write("tools", (LOCKS / "tools.in").read_text().split(), whole=False)


def pinned(path: Path) -> dict[str, str]:
    """Return `name==version` by name, in lower case."""
    lines = path.read_text().split()
    return {line.partition("==")[0].lower(): line for line in lines}


def write(name: str, requirements: list[str], *, whole: bool) -> None:
    """Write a lock; `whole`: the requirements include their own dependencies."""
    uv = Path(sys.executable).with_name("uv")
    options = ["--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    options += ["--python-version", OLDEST_PYTHON, *(["--no-deps"] if whole else [])]
    with tempfile.NamedTemporaryFile("w", suffix=".in") as given:
        given.write("\n".join(requirements))
        given.flush()
        target = LOCKS / f"{name}.lock"
        target.unlink(missing_ok=True)  # an old lock must not influence the new one
        subprocess.run([uv, "pip", "compile", *options, given.name, "-o", target], check=True)
    print(f"{target.relative_to(ROOT)}: {target.read_text().count('==')} packages")


if __name__ == "__main__":
    main()
