"""The report of a probe: named figures with units, in reading order.

Unlike scenarios, probes examine one behaviour of a server (memory, isolation), not its speed, and
run once. `report.py` formats them.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from penstock.bench.load.raw_client import ServerEndpoint

Unit = Literal["", "bytes", "s", "/s", "×"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One line of a probe's report; None means "not known without the server's pid"."""

    name: str
    value: float | bool | None
    unit: Unit = ""


Probe = Callable[[ServerEndpoint, int | None], list[Figure]]


def per(total: float | None, count: int) -> float | None:
    return total / count if total is not None and count else None


def difference(after: float | None, before: float | None) -> float | None:
    return after - before if after is not None and before is not None else None
