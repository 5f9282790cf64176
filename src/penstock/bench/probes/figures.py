"""What a probe reports: named figures, each with its unit, in the order worth reading.

Unlike scenarios, probes look at one behaviour of a server (memory, isolation), not at its speed,
and are run once. Formatting for people happens in `report.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.bench.load.raw_client import ServerEndpoint

Unit = Literal["", "bytes", "s", "/s", "×"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a probe's report; None stands for "not known without the server's pid"."""

    name: str
    value: float | bool | None
    unit: Unit = ""


Probe = Callable[[ServerEndpoint, int | None], list[Figure]]


def per(total: float | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def difference(after: float | None, before: float | None) -> float | None:
    return after - before if after is not None and before is not None else None
