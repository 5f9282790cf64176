"""Every transcript on both servers, and on ours in every way its bytes can arrive.

The scripts beside this file say what a server must answer; the reference has answered exactly so.
On ours a case is replayed whole, in one burst, byte by byte and in random pieces: framing may not
matter. The reference vouches for the law alone, and plays it whole.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from support.transcript import Player, cut_bytes, cut_randomly, cut_whole, read_cases

if TYPE_CHECKING:
    from support.servers import Implementation, ServerPool
    from support.transcript import Case

SCRIPTS = Path(__file__).parent / "scripts"
CASES = [case for path in sorted(SCRIPTS.glob("*.txt")) for case in read_cases(path)]
ARRIVALS = {
    "whole": (cut_whole, False),
    "burst": (cut_whole, True),
    "bytes": (cut_bytes, False),
    "pieces": (cut_randomly, False),
}
PLAYS = [
    pytest.param(name, case, arrival, id=f"{name}-{case.source}: {case.law} [{arrival}]")
    for name in ("ours", "reference")
    for case in CASES
    for arrival in ARRIVALS
    if arrival == "whole" or (name == "ours" and not case.whole)
]


@pytest.mark.parametrize(("implementation", "case", "arrival"), PLAYS, indirect=["implementation"])
def test_transcript(
    implementation: Implementation, case: Case, arrival: str, pool: ServerPool
) -> None:
    cut, burst = ARRIVALS[arrival]
    if not case.fresh:
        server = pool.get(implementation, case.config, case.flags)
        Player(server.address, cut, burst=burst).play(case)
        return
    server = pool.start(implementation, case.config, case.flags)
    try:
        Player(server.address, cut, burst=burst).play(case)
    finally:
        server.kill()
