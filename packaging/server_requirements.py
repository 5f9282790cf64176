"""Prints the part of a lock that the server needs: its dependencies and what they need in turn.

    python packaging/server_requirements.py requirements/dev.lock > server.lock

`SERVER` lists them. A test compares the list with what is installed and with `pyproject.toml`.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

SERVER = frozenset(
    {
        "bcrypt",
        "cffi",
        "cryptography",
        "h11",
        "markdown-it-py",
        "mdurl",
        "msgspec",
        "nats-py",
        "prometheus-client",
        "pycparser",
        "pygments",
        "rich",
        "uvloop",
        "websockets",
        "zstandard",
    }
)


def entries(lock: str) -> dict[str, str]:
    """The entries of a lock by name."""
    parts = re.split(r"\n(?=\w)", lock.strip())
    return {part.partition("==")[0]: part for part in parts}


def main(path: str) -> None:
    found = entries(Path(path).read_text())
    print("\n".join(found[name] for name in sorted(SERVER)))


if __name__ == "__main__":
    main(sys.argv[1])
