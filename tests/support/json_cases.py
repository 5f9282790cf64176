"""Request bodies with faults in their JSON, read from `contract/jetstream/json_faults.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

FILE = Path(__file__).parents[1] / "contract" / "jetstream" / "json_faults.txt"


class Body(NamedTuple):
    """A body, and what the reference says of its JSON; "" if nothing is wrong with it."""

    raw: bytes
    fault: str

    @property
    def label(self) -> str:
        return ascii(self.raw.decode())[1:-1]


def bodies() -> list[Body]:
    """Every recorded body, in order."""
    lines = [line for line in FILE.read_text().split("\n") if line and not line.startswith("#")]
    return [
        Body(asked[2:].encode(), answered[1:].lstrip())
        for asked, answered in zip(lines[::2], lines[1::2], strict=True)
    ]
