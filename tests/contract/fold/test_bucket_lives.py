"""Random lives of buckets and folds: at rest a fold is its bucket, or says why not.

`PENSTOCK_FAULT_TIMES` multiplies the number of lives, `PENSTOCK_FIRST_SEED` begins elsewhere.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from support.bucket_lives import Life
from support.killed_followers import victims

if TYPE_CHECKING:
    from pathlib import Path

    from support.servers import Starter

LIVES = 4 * max(1, int(os.environ.get("PENSTOCK_FAULT_TIMES", "1")))
FIRST_SEED = int(os.environ.get("PENSTOCK_FIRST_SEED", "1"))


# A client whose server was killed while it dials may leave a socket to the collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + LIVES))
async def test_fold_equals_its_bucket_or_reports_why_not(
    start: Starter, tmp_path: Path, seed: int
) -> None:
    async with victims() as killed:
        outcome = await Life(start("", "-js", "-sd", "store"), tmp_path, seed, killed).run()
    print(f"outcome {outcome}")
