"""`penstock.read`: streams as Arrow, Polars and pandas, without Spark, on both servers."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import TYPE_CHECKING

import polars
import pyarrow as pa
import pytest

import penstock
from penstock.spark.errors import DataLoss
from penstock.spark.options import OptionError
from support.pipelines import fill, tell, url_of

if TYPE_CHECKING:
    from support.servers import ServerUnderTest

names = (f"ROWS{n}" for n in itertools.count())


@pytest.fixture
def stream() -> str:
    return next(names)


def test_all_columns_come_as_arrow_polars_and_pandas(server: ServerUnderTest, stream: str) -> None:
    fill(server, stream, 1, 30)
    rows = penstock.read(stream, url=url_of(server), last="1h")
    table = rows.to_arrow()
    assert table.schema == rows.schema
    assert table["seq"].to_pylist() == list(range(1, 31))
    assert table["data"].to_pylist() == [b"message %d" % n for n in range(1, 31)]
    assert table["headers"][9].as_py() == [("N", ["10"])]
    assert rows.to_polars()["size"].sum() == sum(table["size"].to_pylist())
    assert polars.DataFrame(rows).height == 30
    assert pa.table(rows).num_rows == 30
    assert list(rows.to_pandas()["subject"].unique()) == [f"{stream}.{n}.x" for n in (1, 2, 0)]


def test_ranges_subjects_and_columns_narrow_it(server: ServerUnderTest, stream: str) -> None:
    fill(server, stream, 1, 30)
    url = url_of(server)
    part = penstock.read(
        stream, url=url, first_seq=4, last_seq=12, subjects=f"{stream}.0.>", columns=["seq", "size"]
    ).to_arrow()
    assert part.to_pydict() == {"seq": [6, 9, 12], "size": [9, 9, 10]}
    assert penstock.read(stream, url=url, since="2100-01-01").to_arrow().num_rows == 0
    assert penstock.read(stream, url=url, until="2000-01-01").to_arrow().num_rows == 0
    with pytest.raises(OptionError, match="no column body"):
        penstock.read(stream, url=url, columns=["body"])
    with pytest.raises(OptionError, match="give one of"):
        penstock.read(stream, url=url, last="1h", first_seq=3)


def test_cursor_continues_and_refuses_another_stream(server: ServerUnderTest, stream: str) -> None:
    url = url_of(server)
    fill(server, stream, 1, 20)
    first = penstock.read(stream, url=url)
    fill(server, stream, 21, 30)
    assert first.to_arrow().num_rows == 20
    second = penstock.read(stream, url=url, after=first.cursor)
    assert second.to_arrow()["seq"].to_pylist() == list(range(21, 31))
    assert penstock.read(stream, url=url, after=second.cursor).to_arrow().num_rows == 0
    tell(server, lambda js: js.delete_stream(stream))
    fill(server, stream, 1, 5)
    with pytest.raises(DataLoss, match="recreated"):
        penstock.read(stream, url=url, after=second.cursor)


def test_it_needs_no_pyspark(ours: ServerUnderTest, stream: str) -> None:
    fill(ours, stream, 1, 3)
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import penstock\n"
        f"print(penstock.read({stream!r}, url={url_of(ours)!r}).to_arrow().num_rows)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.stdout == "3\n", done.stderr
