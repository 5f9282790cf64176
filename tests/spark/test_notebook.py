"""The notebook among the examples runs, cell by cell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = Path(__file__).parents[2] / "examples" / "streams.ipynb"
LAST = "stop"
"""The cell that would end the session that all tests share."""


def test_every_cell_of_notebook_runs(spark: SparkSession) -> None:
    cells = [cell for cell in json.loads(NOTEBOOK.read_text())["cells"] if cell["source"]]
    names: dict[str, Any] = {}
    try:
        for cell in cells:
            if cell["cell_type"] == "code" and cell["id"] != LAST:
                exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    finally:
        if "server" in names:
            names["server"].stop()
    assert names["spark"] is spark
    assert names["found"].messages == 3000
    assert cells[-1]["id"] == LAST
