"""Differences between Spark 4.0, 4.1 and 4.2, in one place.

| | 4.0 | 4.1 | 4.2 and newer |
| --- | --- | --- | --- |
| filters of tables reach the source | no | yes | yes |
| streaming sinks | no | yes | yes |
| limits of batches, reported lag | no | no | yes |

A class that a version lacks has a placeholder of the same name, so other modules import from here
without a version check. The `HAS_…` constants state which features exist.
"""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import datasource
from pyspark.sql.pandas import types as pandas_types

from penstock.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceStreamArrowWriter,
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
        LessThanOrEqual,
        StringStartsWith,
    )
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadLimit,
        ReadMaxBytes,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )
    from pyspark.sql.types import DataType, StructType
else:
    try:
        _limits = import_module("pyspark.sql.streaming.datasource")
    except ModuleNotFoundError:
        _limits = None

    def _found(module: object, name: str) -> type:
        """Return a class of Spark, or a placeholder of the same name."""
        return getattr(module, name, None) or type(name, (), {})

    Filter = _found(datasource, "Filter")
    EqualTo = _found(datasource, "EqualTo")
    GreaterThan = _found(datasource, "GreaterThan")
    GreaterThanOrEqual = _found(datasource, "GreaterThanOrEqual")
    In = _found(datasource, "In")
    LessThan = _found(datasource, "LessThan")
    LessThanOrEqual = _found(datasource, "LessThanOrEqual")
    StringStartsWith = _found(datasource, "StringStartsWith")
    DataSourceStreamArrowWriter = _found(datasource, "DataSourceStreamArrowWriter")
    ReadLimit = _found(_limits, "ReadLimit")
    ReadAllAvailable = _found(_limits, "ReadAllAvailable")
    ReadMaxRows = _found(_limits, "ReadMaxRows")
    ReadMaxBytes = _found(_limits, "ReadMaxBytes")
    ReadMinRows = _found(_limits, "ReadMinRows")
    SupportsTriggerAvailableNow = _found(_limits, "SupportsTriggerAvailableNow")

HAS_FILTERS: Final = hasattr(datasource, "Filter")
HAS_STREAM_SINKS: Final = hasattr(datasource, "DataSourceStreamArrowWriter")
HAS_LIMITS: Final = "limit" in signature(datasource.DataSourceStreamReader.latestOffset).parameters

_IN_UTC: Final[dict[str, Any]] = (
    {"timezone": "UTC"}
    if "timezone" in signature(pandas_types.to_arrow_type).parameters
    else {"timestamp_utc": True}
)


def check_stream_sinks() -> None:
    """Raise `OptionError` if this Spark version has no streaming sinks that accept Arrow."""
    if not HAS_STREAM_SINKS:
        raise OptionError(
            "streaming sinks need Spark 4.1: write from foreachBatch with this version, where each "
            "batch is a table"
        )


def to_arrow_schema(schema: StructType) -> Any:
    """Return a schema as Spark expects it from a task; times are in UTC."""
    return pandas_types.to_arrow_schema(schema, **_IN_UTC)


def to_arrow_type(kind: DataType) -> Any:
    """Return a type as Spark expects it from a task; times are in UTC."""
    return pandas_types.to_arrow_type(kind, **_IN_UTC)


__all__ = [
    "HAS_FILTERS",
    "HAS_LIMITS",
    "HAS_STREAM_SINKS",
    "DataSourceStreamArrowWriter",
    "EqualTo",
    "Filter",
    "GreaterThan",
    "GreaterThanOrEqual",
    "In",
    "LessThan",
    "LessThanOrEqual",
    "ReadAllAvailable",
    "ReadLimit",
    "ReadMaxBytes",
    "ReadMaxRows",
    "ReadMinRows",
    "StringStartsWith",
    "SupportsTriggerAvailableNow",
    "check_stream_sinks",
    "to_arrow_schema",
    "to_arrow_type",
]
