"""The session works at once: formats are found, workers run on this Python."""

from __future__ import annotations

import sys
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

from penstock.spark.formats import FORMATS, data_source

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_workers_run_on_this_python(spark: SparkSession) -> None:
    def where(_: int) -> str:
        import sys

        return sys.executable

    assert spark.sparkContext.parallelize([1], 1).map(where).collect() == [sys.executable]


def test_spark_finds_every_format_by_itself() -> None:
    found = {
        module.DefaultSource.name(): module.DefaultSource
        for info in iter_modules()
        if info.name.startswith("pyspark_penstock")
        for module in [import_module(info.name)]
    }
    assert found == {name: data_source(name) for name in FORMATS}


def test_format_has_name_it_is_registered_under() -> None:
    assert {name: data_source(name).name() for name in FORMATS} == {name: name for name in FORMATS}
